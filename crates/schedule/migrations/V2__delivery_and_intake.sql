-- Delivery of notifications on the lease engine, and what intake must remember. docs/spec/schedule.md and schedule-api.md are the contracts.
-- Everything here is beside what backends and bots know: plain SQL that names the documented columns alone works as before.

-- A constant that is made of no column is no condition of an index.
DROP INDEX schedule_ingest.capture_session_lanes;
CREATE INDEX capture_session_lanes ON schedule_ingest.capture_session
    ((0 * user_id), (CASE state WHEN 'pending' THEN 0 ELSE 1 END), (id), (created_at), id)
    WHERE finalized_at IS NOT NULL AND lease_state IN ('pending', 'claimed');

-- In which order sessions were opened. Their own time is a backend's, whose clock may jump.
ALTER TABLE schedule_ingest.capture_session ADD COLUMN opened_seq bigint GENERATED ALWAYS AS IDENTITY;

ALTER TABLE schedule_ingest.schedule_notification
    -- The order of a user's messages.
    ADD COLUMN delivery_seq       bigint GENERATED ALWAYS AS IDENTITY,
    ADD COLUMN attempts           integer NOT NULL DEFAULT 0,
    ADD COLUMN next_attempt_at    timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN last_attempt_at    timestamptz,
    ADD COLUMN last_error_code    text,
    ADD COLUMN last_error_message text,
    ADD COLUMN failed_at          timestamptz,
    ADD COLUMN failed_reason      text,
    ADD CONSTRAINT schedule_notification_seq UNIQUE (delivery_seq),
    ADD CONSTRAINT schedule_notification_attempts CHECK (attempts >= 0);

-- The lanes of the lease engine, letter by letter as its description has them.
CREATE INDEX schedule_notification_lanes ON schedule_ingest.schedule_notification
    ((user_id), ((0 * attempts)), (user_id), delivery_seq)
    WHERE status = 'pending';
CREATE INDEX schedule_notification_due ON schedule_ingest.schedule_notification (next_attempt_at)
    WHERE status = 'pending';

-- Who delivers to which user. A notification itself is not marked while it is under way: it stays pending until it is sent or failed.
CREATE TABLE schedule_ingest.notification_lane (
    tenant_id        bigint NOT NULL,
    rank             integer NOT NULL,
    key              bigint NOT NULL,
    turn             bigint NOT NULL DEFAULT 0,
    claimed_at       timestamptz NOT NULL DEFAULT now(),
    lease_token      uuid,
    claimed_by       text,
    lease_expires_at timestamptz,
    taken            bigint[],
    PRIMARY KEY (tenant_id, rank, key, turn),
    CHECK (num_nulls(lease_token, claimed_by, lease_expires_at, taken) IN (0, 4))
) WITH (fillfactor = 10);

-- Wakes whoever delivers, when the transaction commits.
CREATE FUNCTION schedule_ingest.schedule_notification_tells() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('schedule_notification', '');
    RETURN NULL;
END $$;
CREATE TRIGGER schedule_notification_tells AFTER INSERT ON schedule_ingest.schedule_notification
    FOR EACH STATEMENT EXECUTE FUNCTION schedule_ingest.schedule_notification_tells();

-- Where a user is told by Telegram, if it is not the chat of the user's own number.
ALTER TABLE schedule_ingest.user_setting ADD COLUMN telegram_chat_id bigint;

-- A place that was promised for an image, until the image is there.
CREATE TABLE schedule_ingest.capture_upload (
    id           uuid PRIMARY KEY,
    session_id   uuid NOT NULL REFERENCES schedule_ingest.capture_session (id),
    sequence     integer NOT NULL,
    r2_key       text NOT NULL,
    mime_type    text NOT NULL,
    size_bytes   bigint NOT NULL,
    sha256       bytea,
    created_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT capture_upload_order UNIQUE (session_id, sequence),
    CONSTRAINT capture_upload_key UNIQUE (r2_key),
    CONSTRAINT capture_upload_sequence CHECK (sequence > 0),
    CONSTRAINT capture_upload_size CHECK (size_bytes > 0),
    CONSTRAINT capture_upload_sha256 CHECK (sha256 IS NULL OR octet_length(sha256) = 32)
);

-- Which session a request to open one has made, so that asking again makes no second one.
CREATE TABLE schedule_ingest.capture_request (
    idempotency_key text PRIMARY KEY,
    session_id      uuid NOT NULL REFERENCES schedule_ingest.capture_session (id),
    created_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT capture_request_key CHECK (char_length(idempotency_key) BETWEEN 1 AND 200)
);

-- Who may use the intake's API.
CREATE TABLE IF NOT EXISTS api_tokens (
    id           uuid        PRIMARY KEY,
    name         text        NOT NULL,
    hash         bytea       NOT NULL,
    role         text        NOT NULL,
    tenants      uuid[],
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    CONSTRAINT api_tokens_hash_key UNIQUE (hash),
    CONSTRAINT api_tokens_hash CHECK (octet_length(hash) = 32),
    CONSTRAINT api_tokens_name CHECK (char_length(name) BETWEEN 1 AND 100),
    CONSTRAINT api_tokens_role CHECK (role IN ('admin', 'edge', 'operator', 'viewer')),
    CONSTRAINT api_tokens_tenants CHECK (tenants IS NULL OR cardinality(tenants) >= 1)
);
