-- What is asked of these two is about rows that are not finished: the age of the oldest, and an aggregate's order. With that as their condition a row
-- that is completed writes no entry in them, and they stay as small as the backlog: docs/adr/0013-outbox-indexes.md.

DROP INDEX idx_outbox_aggregate_order, idx_outbox_created;
CREATE INDEX idx_outbox_aggregate_order ON outbox_events (aggregate_id, created_at) WHERE NOT finished;
CREATE INDEX idx_outbox_created ON outbox_events (created_at) WHERE NOT finished;
