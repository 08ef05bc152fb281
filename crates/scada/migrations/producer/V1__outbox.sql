-- What a node must publish, and its own copy of what it measured. docs/spec/scada.md says what each column means.

CREATE TABLE outbox_events (
    id                 uuid         PRIMARY KEY,
    aggregate_type     varchar(64)  NOT NULL,
    aggregate_id       varchar(512) NOT NULL,
    event_type         varchar(128) NOT NULL,
    payload            jsonb        NOT NULL,
    headers            jsonb        NOT NULL,
    status             varchar(16)  NOT NULL DEFAULT 'PENDING',
    retry_count        integer      NOT NULL DEFAULT 0,
    available_at       timestamptz  NOT NULL DEFAULT now(),
    locked_by          text,
    locked_at          timestamptz,
    sent_at            timestamptz,
    created_at         timestamptz  NOT NULL DEFAULT now(),
    lease_token        uuid,
    lock_expires_at    timestamptz,
    last_error_code    text,
    last_error_message text,
    failed_at          timestamptz,
    failed_reason      text,
    CONSTRAINT outbox_events_status CHECK (status IN ('PENDING', 'IN_PROGRESS', 'SENT', 'FAILED')),
    CONSTRAINT outbox_events_retries CHECK (retry_count >= 0),
    CONSTRAINT outbox_events_lease
        CHECK ((status = 'IN_PROGRESS') = (lease_token IS NOT NULL)
               AND (status <> 'IN_PROGRESS'
                    OR (locked_by IS NOT NULL AND locked_at IS NOT NULL AND lock_expires_at IS NOT NULL))),
    CONSTRAINT outbox_events_sent CHECK ((status = 'SENT') = (sent_at IS NOT NULL)),
    CONSTRAINT outbox_events_failed CHECK (status <> 'FAILED' OR (failed_at IS NOT NULL AND failed_reason IS NOT NULL))
) WITH (fillfactor = 70);

CREATE INDEX idx_outbox_status_available ON outbox_events (status, available_at);
CREATE INDEX idx_outbox_status_locked ON outbox_events (status, locked_at);
CREATE INDEX idx_outbox_aggregate_order ON outbox_events (aggregate_id, created_at);
CREATE INDEX idx_outbox_created ON outbox_events (created_at);
-- The order that claims are made in: alarms first, then an aggregate's rows one after the other.
CREATE INDEX idx_outbox_lane ON outbox_events
    ((0::bigint), (CASE aggregate_type WHEN 'alarm' THEN 0 WHEN 'event' THEN 1 ELSE 2 END),
     (aggregate_id::text COLLATE "C"), created_at, id)
    WHERE status IN ('PENDING', 'IN_PROGRESS');
-- What the pruner removes.
CREATE INDEX idx_outbox_sent ON outbox_events (sent_at) WHERE status = 'SENT';

CREATE FUNCTION outbox_events_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('outbox_events', '');
    RETURN NULL;
END
$$;
CREATE TRIGGER outbox_events_wake AFTER INSERT ON outbox_events
    FOR EACH STATEMENT EXECUTE FUNCTION outbox_events_wake();

CREATE TABLE local_telemetry (
    id         uuid             PRIMARY KEY,
    timestamp  timestamptz      NOT NULL,
    plant      varchar(64)      NOT NULL,
    area       varchar(64)      NOT NULL,
    unit_name  varchar(64)      NOT NULL,
    tag        varchar(128)     NOT NULL,
    value      double precision NOT NULL,
    unit       varchar(32)      NOT NULL,
    quality    varchar(16)      NOT NULL,
    node_id    integer          NOT NULL,
    created_at timestamptz      NOT NULL DEFAULT now(),
    CONSTRAINT local_telemetry_quality CHECK (quality IN ('GOOD', 'BAD', 'UNCERTAIN', 'OOR')),
    CONSTRAINT local_telemetry_node CHECK (node_id BETWEEN 1 AND 1000)
);
CREATE INDEX idx_local_telemetry_tag ON local_telemetry (tag, timestamp DESC);
CREATE INDEX idx_local_telemetry_timestamp ON local_telemetry (timestamp);
