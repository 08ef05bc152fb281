-- What this tier has of every stream, what was declared lost, and what is missing.

CREATE TABLE ledger_frontier (
    stream            text        NOT NULL,
    epoch             uuid        NOT NULL,
    tenant_id         uuid        NOT NULL,
    acked             bigint      NOT NULL DEFAULT 0,
    received          bigint[]    NOT NULL DEFAULT '{}',
    lost              bigint[]    NOT NULL DEFAULT '{}',
    received_count    bigint      NOT NULL DEFAULT 0,
    lost_count        bigint      NOT NULL DEFAULT 0,
    stored_count      bigint      NOT NULL DEFAULT 0,
    quarantined_count bigint      NOT NULL DEFAULT 0,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, epoch),
    CONSTRAINT ledger_frontier_pairs
        CHECK (cardinality(received) % 2 = 0 AND cardinality(lost) % 2 = 0),
    CONSTRAINT ledger_frontier_counts
        CHECK (acked >= 0 AND received_count >= 0 AND lost_count >= 0
               AND stored_count >= 0 AND quarantined_count >= 0
               AND acked <= received_count + lost_count)
) WITH (fillfactor = 50);

CREATE TABLE ledger_block (
    stream text   NOT NULL,
    epoch  uuid   NOT NULL,
    block  bigint NOT NULL,
    count  bigint NOT NULL,
    hash   bytea  NOT NULL,
    PRIMARY KEY (stream, epoch, block),
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
    PRIMARY KEY (stream, epoch, from_seq, to_seq, reason, origin),
    CONSTRAINT ledger_tombstone_range
        CHECK (from_seq >= 1 AND to_seq >= from_seq AND count = to_seq - from_seq + 1),
    CONSTRAINT ledger_tombstone_reason
        CHECK (reason IN ('drop_oldest', 'expired', 'disk_full', 'corrupt', 'lost', 'unsendable')),
    CONSTRAINT ledger_tombstone_origin CHECK (origin IN ('node', 'edge', 'cloud'))
);
CREATE INDEX ledger_tombstone_tenant ON ledger_tombstone (tenant_id, recorded_at DESC);
