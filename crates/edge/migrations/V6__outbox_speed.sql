-- The outbox, made quick to drain. docs/adr/0013-outbox-indexes.md says why and what it cost before.

-- The same before and after a claim, unlike the status: an index may depend on it, and a claim then writes no index entry.
ALTER TABLE sync_outbox
    ADD COLUMN finished boolean NOT NULL GENERATED ALWAYS AS (status IN ('acked', 'dlq', 'failed')) STORED;
CREATE OR REPLACE VIEW sync_outbox_live AS SELECT * FROM sync_outbox WHERE priority > 0;
CREATE OR REPLACE VIEW sync_outbox_bulk AS SELECT * FROM sync_outbox WHERE priority <= 0;

DROP INDEX sync_outbox_work, sync_outbox_lease_expiry, sync_outbox_claim, sync_outbox_lane_live, sync_outbox_lane_bulk;
CREATE INDEX sync_outbox_work ON sync_outbox (next_attempt_at, occurred_at) WHERE NOT finished;
-- A dead letter has the time of its death; an index on the status would have to follow every claim.
CREATE INDEX sync_outbox_dead ON sync_outbox (tenant_id, failed_at DESC) WHERE failed_at IS NOT NULL;

-- In the order of the claim: rows of one tenant, priority and device are next to each other. A row is in one of the two.
CREATE INDEX sync_outbox_lane_live ON sync_outbox
    (tenant_id, (-priority), (coalesce(device_id, id)), (coalesce(occurred_at, created_at)), id)
    WHERE NOT finished AND priority > 0;
CREATE INDEX sync_outbox_lane_bulk ON sync_outbox
    (tenant_id, (-priority), (coalesce(device_id, id)), (coalesce(occurred_at, created_at)), id)
    WHERE NOT finished AND priority <= 0;

-- Room for a second version of every row on its page, with its lease.
ALTER TABLE sync_outbox SET (fillfactor = 45);

-- The engine writes updated_at itself; for whoever does not, the trigger does.
DROP TRIGGER sync_outbox_updated_at ON sync_outbox;
CREATE TRIGGER sync_outbox_updated_at BEFORE UPDATE ON sync_outbox
    FOR EACH ROW WHEN (NEW.updated_at = OLD.updated_at) EXECUTE FUNCTION sync_outbox_touch();
