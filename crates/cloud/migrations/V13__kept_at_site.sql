-- Readings that stay at their site by configuration: docs/spec/edge-cloud.md, "Accounted ranges".
ALTER TABLE ledger_tombstone DROP CONSTRAINT ledger_tombstone_reason;
ALTER TABLE ledger_tombstone ADD CONSTRAINT ledger_tombstone_reason
    CHECK (reason IN ('drop_oldest', 'expired', 'disk_full', 'corrupt', 'lost', 'unsendable',
                      'quarantined', 'duplicate', 'kept_at_site'));
