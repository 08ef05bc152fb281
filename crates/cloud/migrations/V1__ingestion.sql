-- What ingestion writes. docs/spec/cloud-tables.md explains every column.

CREATE TABLE ingest_dedupe (
    tenant_id     uuid        NOT NULL,
    event_id      uuid        NOT NULL,
    first_seen_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT ingest_dedupe_key PRIMARY KEY (tenant_id, event_id)
);
CREATE INDEX ingest_dedupe_first_seen ON ingest_dedupe (first_seen_at ASC);

CREATE TABLE ledger_frontier (
    id             bigint      GENERATED ALWAYS AS IDENTITY UNIQUE,
    tenant_id      uuid        NOT NULL,
    stream         text        NOT NULL,
    epoch          uuid        NOT NULL,
    acked          bigint      NOT NULL DEFAULT 0,
    received       bigint[]    NOT NULL DEFAULT '{}',
    lost           bigint[]    NOT NULL DEFAULT '{}',
    received_count bigint      NOT NULL DEFAULT 0,
    lost_count     bigint      NOT NULL DEFAULT 0,
    accepted_count bigint      NOT NULL DEFAULT 0,
    cloned_count   bigint      NOT NULL DEFAULT 0,
    behind         boolean     NOT NULL DEFAULT false,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, stream, epoch),
    CONSTRAINT ledger_frontier_pairs
        CHECK (cardinality(received) % 2 = 0 AND cardinality(lost) % 2 = 0),
    CONSTRAINT ledger_frontier_counts
        CHECK (acked >= 0 AND received_count >= 0 AND lost_count >= 0
               AND accepted_count >= 0 AND cloned_count BETWEEN 0 AND accepted_count
               AND acked <= received_count + lost_count)
) WITH (fillfactor = 50);
CREATE INDEX ledger_frontier_behind ON ledger_frontier (id) WHERE behind;

CREATE TABLE ledger_page (
    frontier_id bigint NOT NULL REFERENCES ledger_frontier (id),
    page        bigint NOT NULL,
    ids         bytea  NOT NULL,
    PRIMARY KEY (frontier_id, page),
    CONSTRAINT ledger_page_ids CHECK (octet_length(ids) = 512)
) WITH (fillfactor = 80);
-- Hashes do not compress, and a page is read with its row.
ALTER TABLE ledger_page ALTER COLUMN ids SET STORAGE PLAIN;

CREATE TABLE ledger_clone (
    frontier_id   bigint      NOT NULL REFERENCES ledger_frontier (id),
    seq           bigint      NOT NULL,
    event_id      uuid        NOT NULL,
    first_seen_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (frontier_id, seq, event_id)
);

CREATE TABLE ledger_block (
    tenant_id uuid   NOT NULL,
    stream    text   NOT NULL,
    epoch     uuid   NOT NULL,
    block     bigint NOT NULL,
    count     bigint NOT NULL,
    hash      bytea  NOT NULL,
    PRIMARY KEY (tenant_id, stream, epoch, block),
    CONSTRAINT ledger_block_count CHECK (count BETWEEN 1 AND 1024),
    CONSTRAINT ledger_block_hash CHECK (octet_length(hash) = 16)
) WITH (fillfactor = 70);

CREATE TABLE ledger_tombstone (
    tenant_id   uuid        NOT NULL,
    stream      text        NOT NULL,
    epoch       uuid        NOT NULL,
    from_seq    bigint      NOT NULL,
    to_seq      bigint      NOT NULL,
    count       bigint      NOT NULL,
    first_at    timestamptz,
    last_at     timestamptz,
    reason      text        NOT NULL,
    origin      text        NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, stream, epoch, from_seq, to_seq, reason, origin),
    CONSTRAINT ledger_tombstone_range
        CHECK (from_seq >= 1 AND to_seq >= from_seq AND count = to_seq - from_seq + 1),
    CONSTRAINT ledger_tombstone_reason
        CHECK (reason IN ('drop_oldest', 'expired', 'disk_full', 'corrupt', 'lost', 'unsendable')),
    CONSTRAINT ledger_tombstone_origin CHECK (origin IN ('node', 'edge', 'cloud'))
);
CREATE INDEX ledger_tombstone_tenant ON ledger_tombstone (tenant_id, recorded_at DESC);

CREATE TABLE ingest_rejected (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key        bytea       NOT NULL,
    first_at   timestamptz NOT NULL DEFAULT now(),
    last_at    timestamptz NOT NULL DEFAULT now(),
    times      bigint      NOT NULL DEFAULT 1,
    token_id   uuid        NOT NULL,
    batch_id   text        NOT NULL,
    tenant_id  uuid,
    event_id   uuid,
    stream     text,
    epoch      uuid,
    seq        bigint,
    code       text        NOT NULL,
    field      text,
    detail     text        NOT NULL,
    body       bytea       NOT NULL,
    body_bytes bigint      NOT NULL,
    CONSTRAINT ingest_rejected_key UNIQUE (key),
    CONSTRAINT ingest_rejected_times CHECK (times >= 1),
    CONSTRAINT ingest_rejected_code
        CHECK (code IN ('invalid', 'tenant_forbidden', 'too_large', 'refused_by_database')),
    CONSTRAINT ingest_rejected_body CHECK (octet_length(body) <= body_bytes)
);
CREATE INDEX ingest_rejected_token ON ingest_rejected (token_id, last_at DESC);
CREATE INDEX ingest_rejected_tenant ON ingest_rejected (tenant_id, last_at DESC);
