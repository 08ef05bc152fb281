-- As the outbox of a node: docs/adr/0013-outbox-indexes.md. A row that is delivered is deleted, so that only failed ones are finished.

ALTER TABLE federation_outbox ADD COLUMN finished boolean NOT NULL GENERATED ALWAYS AS (status = 'FAILED') STORED;
ALTER TABLE federation_outbox SET (fillfactor = 45);

DROP INDEX federation_outbox_lane;
CREATE INDEX federation_outbox_lane ON federation_outbox
    ((0 * length(aggregate_type)), (CASE aggregate_type WHEN 'alarm' THEN 0 WHEN 'event' THEN 1 ELSE 2 END),
     (aggregate_id::text COLLATE "C"), created_at, id)
    WHERE NOT finished;
