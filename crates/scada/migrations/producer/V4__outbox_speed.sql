-- A claim writes no index entry: docs/adr/0013-outbox-indexes.md. And the lane index is one that a claim can use: a constant that is
-- made of no column is no condition of an index, so that claims read from the table's beginning.

ALTER TABLE outbox_events ADD COLUMN finished boolean NOT NULL
    GENERATED ALWAYS AS (status IN ('SENT', 'FAILED')) STORED;
-- Room for a second version of a row in its page.
ALTER TABLE outbox_events SET (fillfactor = 45);

DROP INDEX idx_outbox_lane, idx_outbox_status_available, idx_outbox_status_locked, idx_outbox_sent;
CREATE INDEX idx_outbox_lane ON outbox_events
    ((0 * length(aggregate_type)), (CASE aggregate_type WHEN 'alarm' THEN 0 WHEN 'event' THEN 1 ELSE 2 END),
     (aggregate_id::text COLLATE "C"), created_at, id)
    WHERE NOT finished;
CREATE INDEX idx_outbox_status_available ON outbox_events (available_at) WHERE NOT finished;
CREATE INDEX idx_outbox_sent ON outbox_events (sent_at) WHERE sent_at IS NOT NULL;
CREATE INDEX idx_outbox_failed ON outbox_events (failed_at) WHERE failed_at IS NOT NULL;
