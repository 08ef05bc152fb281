-- What retention leaves behind when it takes something away. docs/spec/retention.md explains it.

-- Where a dead letter went that retention removed.
CREATE TABLE outbox_archive (
    id          uuid        PRIMARY KEY,
    tenant_id   uuid        NOT NULL,
    event_type  text        NOT NULL,
    occurred_at timestamptz,
    status      text        NOT NULL,
    dlq_reason  text,
    media_id    uuid,
    stream      text,
    epoch       uuid,
    seq         bigint,
    bucket      text        NOT NULL,
    object_key  text        NOT NULL,
    sha256      bytea       NOT NULL,
    archived_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT outbox_archive_status CHECK (status IN ('dlq', 'failed')),
    CONSTRAINT outbox_archive_sha256 CHECK (octet_length(sha256) = 32)
);
CREATE INDEX outbox_archive_tenant ON outbox_archive (tenant_id, archived_at DESC);
CREATE INDEX outbox_archive_media ON outbox_archive (media_id) WHERE media_id IS NOT NULL;

-- What the disk limit made the edge give up, batch by batch.
CREATE TABLE retention_log (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL DEFAULT now(),
    class    text        NOT NULL,
    rows     bigint      NOT NULL,
    unplaced bigint      NOT NULL,
    bytes    bigint      NOT NULL,
    first_at timestamptz,
    last_at  timestamptz,
    CONSTRAINT retention_log_class CHECK (class IN ('telemetry', 'event', 'alarm')),
    CONSTRAINT retention_log_rows CHECK (rows >= 1 AND unplaced BETWEEN 0 AND rows)
);

-- A row is marked as deleted before its object is, so that a kill in between leaves something to go on from.
ALTER TABLE media_objects ADD COLUMN purged_at timestamptz;
CREATE INDEX media_objects_unpurged ON media_objects (deleted_at) WHERE status = 'deleted' AND purged_at IS NULL;
CREATE INDEX media_objects_captured ON media_objects (captured_at) WHERE status = 'stored';

-- Dead letters are found by failed_at, those that an operator gave up on too. Rows that are there already are not looked at.
ALTER TABLE sync_outbox ADD CONSTRAINT sync_outbox_given_up
    CHECK (status <> 'failed' OR failed_at IS NOT NULL) NOT VALID;

-- A table that is drained and emptied all day: at a fifth of it dead, the default, a vacuum would come late and last long.
ALTER TABLE sync_outbox SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
