-- Images in the object store, and uploads of them that go in parts. docs/spec/media.md explains the states.

CREATE TABLE media_objects (
    id          uuid        PRIMARY KEY,
    tenant_id   uuid        NOT NULL,
    farm_id     uuid        NOT NULL,
    barn_id     uuid        NOT NULL,
    device_id   uuid        NOT NULL,
    session_id  uuid,
    bucket      text        NOT NULL,
    -- In the order of bytes, as an object store lists its keys: the sweep walks both side by side.
    object_key  text        COLLATE "C" NOT NULL,
    etag        text,
    mime_type   text        NOT NULL,
    size_bytes  bigint      NOT NULL,
    captured_at timestamptz NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    status      text        NOT NULL DEFAULT 'pending',
    sha256      bytea,
    expires_at  timestamptz,
    stored_at   timestamptz,
    missing_at  timestamptz,
    deleted_at  timestamptz,
    CONSTRAINT media_objects_place UNIQUE (bucket, object_key),
    CONSTRAINT media_objects_status CHECK (status IN ('pending', 'stored', 'missing', 'deleted')),
    CONSTRAINT media_objects_size CHECK (size_bytes >= 1),
    CONSTRAINT media_objects_sha256 CHECK (octet_length(sha256) = 32),
    CONSTRAINT media_objects_pending CHECK (status <> 'pending' OR expires_at IS NOT NULL),
    -- A row that was deleted before its object came was never stored.
    CONSTRAINT media_objects_stored CHECK (status NOT IN ('stored', 'missing') OR stored_at IS NOT NULL),
    CONSTRAINT media_objects_missing CHECK ((status = 'missing') <= (missing_at IS NOT NULL)),
    CONSTRAINT media_objects_deleted CHECK ((status = 'deleted') = (deleted_at IS NOT NULL))
);
CREATE INDEX media_objects_session ON media_objects (tenant_id, session_id);
CREATE INDEX media_objects_device ON media_objects (tenant_id, device_id, captured_at DESC);
-- The list's order: an id of version 7 ascends with its time.
CREATE INDEX media_objects_tenant ON media_objects (tenant_id, id);
-- What the sweep has to settle.
CREATE INDEX media_objects_waiting ON media_objects (expires_at) WHERE status = 'pending';

-- An upload in parts that the object store keeps open until it is completed or aborted.
CREATE TABLE media_uploads (
    media_id   uuid        PRIMARY KEY REFERENCES media_objects (id) ON DELETE CASCADE,
    upload_id  text        NOT NULL,
    part_bytes bigint      NOT NULL,
    part_count integer     NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT media_uploads_id CHECK (char_length(upload_id) BETWEEN 1 AND 1024),
    CONSTRAINT media_uploads_parts CHECK (part_bytes >= 1 AND part_count BETWEEN 1 AND 10000)
);
