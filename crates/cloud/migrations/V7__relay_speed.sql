-- The relay's hand-over, made quick. docs/spec/leased-work.md says why: a claim changes no indexed column, so that it writes
-- one new row version and no index entry, and a published row is deleted.

DROP INDEX relay_outbox_claim, relay_outbox_order, relay_outbox_lease, relay_outbox_acked, relay_outbox_dead;

-- A published row is in ingest_dedupe and no longer here.
DELETE FROM relay_outbox WHERE status = 'acked';
UPDATE relay_outbox SET claimed_by = NULL, claimed_at = NULL, lease_expires_at = NULL, lease_token = NULL
    WHERE status <> 'claimed';
ALTER TABLE relay_outbox DROP CONSTRAINT relay_outbox_status, DROP CONSTRAINT relay_outbox_lease;
ALTER TABLE relay_outbox
    ADD CONSTRAINT relay_outbox_status CHECK (status IN ('pending', 'claimed', 'dlq', 'failed')),
    ADD CONSTRAINT relay_outbox_lease
        CHECK (status <> 'claimed'
               OR (claimed_by IS NOT NULL AND claimed_at IS NOT NULL AND lease_expires_at IS NOT NULL)),
    ADD CONSTRAINT relay_outbox_fence CHECK ((status = 'claimed') = (lease_token IS NOT NULL));

-- The same before and after a claim, unlike the status: an index may depend on it.
ALTER TABLE relay_outbox
    ADD COLUMN finished boolean NOT NULL GENERATED ALWAYS AS (status IN ('dlq', 'failed')) STORED;

-- Room for a second version of every row on its page, with its lease.
ALTER TABLE relay_outbox SET (fillfactor = 45);

CREATE INDEX relay_outbox_lane ON relay_outbox
    (tenant_id, (-priority), (coalesce(ordering_key, id::text) COLLATE "C"), id) WHERE NOT finished;
CREATE INDEX relay_outbox_due ON relay_outbox (next_attempt_at) WHERE NOT finished;
CREATE INDEX relay_outbox_dead ON relay_outbox (tenant_id, failed_at DESC) WHERE finished;

-- The engine writes updated_at itself. A trigger would lock every row once more before it is updated.
DROP TRIGGER relay_outbox_updated_at ON relay_outbox;
DROP FUNCTION relay_outbox_touch();
