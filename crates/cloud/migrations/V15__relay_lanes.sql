-- The relay's lease stands on the lane, not on the row: docs/adr/0015-leases-on-lanes.md.

-- What a relay holds at this moment goes back: it finds its token gone, and the rows are published again.
UPDATE relay_outbox SET status = 'pending', claimed_by = NULL, claimed_at = NULL, lease_expires_at = NULL,
        lease_token = NULL, updated_at = now()
    WHERE status = 'claimed';
ALTER TABLE relay_outbox
    DROP CONSTRAINT relay_outbox_status, DROP CONSTRAINT relay_outbox_lease, DROP CONSTRAINT relay_outbox_fence,
    ADD CONSTRAINT relay_outbox_status CHECK (status IN ('pending', 'dlq', 'failed')),
    DROP COLUMN claimed_by, DROP COLUMN claimed_at, DROP COLUMN lease_expires_at, DROP COLUMN lease_token;

-- A row is inserted, read and deleted. Only a failure makes a second version of it.
ALTER TABLE relay_outbox RESET (fillfactor);

-- Whose turn it is in a lane: rows of one tenant, priority and ordering key. A narrow row that is written often: pages with
-- room, and a vacuum that comes before dead versions are many.
CREATE TABLE relay_lane (
    tenant_id        uuid        NOT NULL,
    rank             integer     NOT NULL,
    key              text        COLLATE "C" NOT NULL,
    turn             bigint      NOT NULL DEFAULT 0,
    claimed_at       timestamptz NOT NULL DEFAULT now(),
    lease_token      uuid,
    claimed_by       text,
    lease_expires_at timestamptz,
    taken            bigint[],
    PRIMARY KEY (tenant_id, rank, key, turn),
    CONSTRAINT relay_lane_lease CHECK (num_nulls(lease_token, claimed_by, lease_expires_at, taken) IN (0, 4))
) WITH (fillfactor = 60, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
