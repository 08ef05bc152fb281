-- What a node had deleted after its edge had acknowledged it, and the edge lost: docs/spec/verify.md.
ALTER TABLE ledger_tombstone DROP CONSTRAINT ledger_tombstone_reason;
ALTER TABLE ledger_tombstone ADD CONSTRAINT ledger_tombstone_reason
    CHECK (reason IN ('drop_oldest', 'expired', 'disk_full', 'corrupt', 'lost', 'unsendable',
                      'quarantined', 'duplicate', 'kept_at_site', 'deleted_after_ack'));
