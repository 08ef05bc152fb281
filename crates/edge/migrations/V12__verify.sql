-- What verify needs to bring the tiers together again. docs/spec/verify.md explains it.

-- Ranges that the edge asks a node for again, until nothing of them is missing.
CREATE TABLE ledger_resend (
    stream       text        NOT NULL,
    epoch        uuid        NOT NULL,
    from_seq     bigint      NOT NULL,
    to_seq       bigint      NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    requested_by text        NOT NULL,
    asked_at     timestamptz,
    asked_times  bigint      NOT NULL DEFAULT 0,
    closed_at    timestamptz,
    PRIMARY KEY (stream, epoch, from_seq, to_seq),
    CONSTRAINT ledger_resend_range CHECK (from_seq >= 1 AND to_seq >= from_seq)
);
CREATE INDEX ledger_resend_open ON ledger_resend (stream, epoch, from_seq) WHERE closed_at IS NULL;

ALTER TABLE ledger_tombstone DROP CONSTRAINT ledger_tombstone_reason;
ALTER TABLE ledger_tombstone ADD CONSTRAINT ledger_tombstone_reason
    CHECK (reason IN ('drop_oldest', 'expired', 'disk_full', 'corrupt', 'lost', 'unsendable',
                      'quarantined', 'duplicate', 'kept_at_site', 'deleted_after_ack', 'held_by_cloud'));

ALTER TABLE sync_audit DROP CONSTRAINT sync_audit_action;
ALTER TABLE sync_audit ADD CONSTRAINT sync_audit_action
    CHECK (action IN ('redrive', 'unclaim_stuck', 'verify_repair'));
