-- Losses are looked for by people; beside them stand very many ranges that are no loss. docs/spec/cloud-tables.md explains it.
CREATE INDEX ledger_tombstone_loss ON ledger_tombstone (tenant_id, recorded_at DESC)
    WHERE reason NOT IN ('quarantined', 'duplicate', 'kept_at_site');
