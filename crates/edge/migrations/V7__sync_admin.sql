-- What operators do with the outbox, and who they are. docs/spec/sync-forwarder.md explains it.

-- As in the cloud's database: each has its own tokens.
CREATE TABLE api_tokens (
    id           uuid        PRIMARY KEY,
    name         text        NOT NULL,
    hash         bytea       NOT NULL,
    role         text        NOT NULL,
    tenants      uuid[],
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    CONSTRAINT api_tokens_hash_key UNIQUE (hash),
    CONSTRAINT api_tokens_hash CHECK (octet_length(hash) = 32),
    CONSTRAINT api_tokens_name CHECK (char_length(name) BETWEEN 1 AND 100),
    CONSTRAINT api_tokens_role CHECK (role IN ('admin', 'edge', 'operator', 'viewer')),
    CONSTRAINT api_tokens_tenants CHECK (tenants IS NULL OR cardinality(tenants) >= 1)
);

CREATE TABLE sync_audit (
    id     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT now(),
    action text        NOT NULL,
    via    text        NOT NULL,
    actor  text        NOT NULL,
    filter jsonb       NOT NULL,
    rows   bigint      NOT NULL,
    CONSTRAINT sync_audit_action CHECK (action IN ('redrive', 'unclaim_stuck')),
    CONSTRAINT sync_audit_via CHECK (via IN ('http', 'cli')),
    CONSTRAINT sync_audit_actor CHECK (char_length(actor) BETWEEN 1 AND 200),
    CONSTRAINT sync_audit_rows CHECK (rows >= 1)
);
CREATE INDEX sync_audit_at ON sync_audit (at DESC);

-- Each row that an action changed, as it was before.
CREATE TABLE sync_audit_row (
    audit_id           bigint      NOT NULL REFERENCES sync_audit (id),
    outbox_id          uuid        NOT NULL,
    tenant_id          uuid        NOT NULL,
    status             text        NOT NULL,
    attempt_count      integer     NOT NULL,
    last_attempt_at    timestamptz,
    last_error_code    text,
    last_error_message text,
    failed_at          timestamptz,
    dlq_reason         text,
    claimed_by         text,
    lease_expires_at   timestamptz,
    PRIMARY KEY (outbox_id, audit_id)
);

-- Why the link went down last; cleared when it is up again.
ALTER TABLE sync_state ADD COLUMN last_failure text;


-- Sequences that were received and have no event of their own for the cloud: it is told of them like of a
-- tombstone, or they would look as if they were missing there.
ALTER TABLE ledger_tombstone DROP CONSTRAINT ledger_tombstone_reason;
ALTER TABLE ledger_tombstone ADD CONSTRAINT ledger_tombstone_reason
    CHECK (reason IN ('drop_oldest', 'expired', 'disk_full', 'corrupt', 'lost', 'unsendable',
                      'quarantined', 'duplicate'));
-- Those that came before this migration.
INSERT INTO ledger_tombstone (tenant_id, stream, epoch, from_seq, to_seq, count, reason, origin)
SELECT DISTINCT q.tenant_id, q.node_id, q.epoch, q.seq, q.seq, 1, 'quarantined', 'edge'
FROM ingress_quarantine q
WHERE q.accounted AND q.seq IS NOT NULL AND q.epoch IS NOT NULL AND q.node_id IS NOT NULL
    AND q.tenant_id IS NOT NULL
ON CONFLICT DO NOTHING;
