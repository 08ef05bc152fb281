-- What the disk limit has to remember. docs/spec/retention.md explains it.

-- How full the pages of a table were when nothing was free in them: what is free now is measured against that.
CREATE TABLE retention_fill (
    table_name text             PRIMARY KEY,
    fill       double precision NOT NULL,
    noted_at   timestamptz      NOT NULL DEFAULT now(),
    CONSTRAINT retention_fill_some CHECK (fill > 0)
);

-- The disk limit took the event that tells the cloud of this image: it has to be told again, and counts as undelivered until then.
ALTER TABLE media_objects ADD COLUMN untold_at timestamptz;
CREATE INDEX media_objects_untold ON media_objects (captured_at) WHERE untold_at IS NOT NULL;
