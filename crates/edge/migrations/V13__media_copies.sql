-- What the cloud has of the site's images, so that retention never removes the only one. docs/spec/media.md explains it.

ALTER TABLE media_objects
    ADD COLUMN cloud_copy      text,
    ADD COLUMN cloud_asked_at  timestamptz,
    ADD COLUMN cloud_copied_at timestamptz,
    ADD COLUMN cloud_ask_at    timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN drop_reason     text,
    ADD CONSTRAINT media_objects_cloud_copy
        CHECK (cloud_copy IN ('unknown', 'pending', 'failed', 'differs', 'copied')
               AND (cloud_copy = 'copied') = (cloud_copied_at IS NOT NULL)),
    ADD CONSTRAINT media_objects_copied CHECK (cloud_copied_at IS NULL OR cloud_copy IS NOT NULL),
    ADD CONSTRAINT media_objects_dropped
        CHECK (drop_reason IS NULL OR (status = 'deleted' AND drop_reason IN ('drop_oldest')));
CREATE INDEX media_objects_uncopied ON media_objects (cloud_ask_at)
    WHERE status = 'stored' AND cloud_copied_at IS NULL;

-- One row: whether the cloud makes copies at all, as it said last.
CREATE TABLE cloud_copying (
    id      boolean     PRIMARY KEY DEFAULT true,
    copies  boolean     NOT NULL,
    said_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cloud_copying_one CHECK (id)
);

ALTER TABLE retention_log DROP CONSTRAINT retention_log_class;
ALTER TABLE retention_log ADD CONSTRAINT retention_log_class
    CHECK (class IN ('telemetry', 'event', 'alarm', 'media'));
