-- Copies of images: whether they are made at all, and which were given up. docs/spec/cloud-stores.md explains it.

-- One row while the role media copies objects: sites wait for copies then.
CREATE TABLE media_copying (
    id    boolean     PRIMARY KEY DEFAULT true,
    since timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT media_copying_one CHECK (id)
);

ALTER TABLE media_object ADD COLUMN copy_failed_at timestamptz;
UPDATE media_object SET copy_failed_at = now() WHERE copy_status = 'failed';
CREATE INDEX media_object_failed ON media_object (copy_failed_at, media_id) WHERE copy_status = 'failed';
