-- What the sync forwarder works by. docs/spec/sync-forwarder.md explains it.

-- Telemetry and the rest are two queues on one table, so that no backlog of the one takes a place of the other.
CREATE VIEW sync_outbox_live AS SELECT * FROM sync_outbox WHERE priority > 0;
CREATE VIEW sync_outbox_bulk AS SELECT * FROM sync_outbox WHERE priority <= 0;

-- In the order of the claim: rows of one tenant, priority and device are next to each other. A row is in one of the two.
CREATE INDEX sync_outbox_lane_live ON sync_outbox
    (tenant_id, (-priority), (coalesce(device_id, id)), (coalesce(occurred_at, created_at)), id)
    WHERE status IN ('pending', 'claimed', 'sending') AND priority > 0;
CREATE INDEX sync_outbox_lane_bulk ON sync_outbox
    (tenant_id, (-priority), (coalesce(device_id, id)), (coalesce(occurred_at, created_at)), id)
    WHERE status IN ('pending', 'claimed', 'sending') AND priority <= 0;

-- A row that is held has the token of its claim, and no other row has one.
ALTER TABLE sync_outbox ADD CONSTRAINT sync_outbox_fence
    CHECK ((status IN ('claimed', 'sending')) = (lease_token IS NOT NULL));

CREATE FUNCTION sync_outbox_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('sync_outbox', '');
    RETURN NULL;
END
$$;
CREATE TRIGGER sync_outbox_added AFTER INSERT ON sync_outbox
    FOR EACH STATEMENT EXECUTE FUNCTION sync_outbox_notify();

-- What the cloud has been told of, and what it made of it when it refused.
ALTER TABLE ledger_tombstone ADD COLUMN sent_at timestamptz, ADD COLUMN send_error text;
CREATE INDEX ledger_tombstone_unsent ON ledger_tombstone (recorded_at) WHERE sent_at IS NULL;
