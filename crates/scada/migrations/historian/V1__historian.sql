-- The central store. docs/spec/historian.md says what each column means.

CREATE TABLE telemetry (
    event_id   uuid             NOT NULL,
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
    extra      jsonb,
    PRIMARY KEY (event_id, timestamp),
    CONSTRAINT telemetry_quality CHECK (quality IN ('GOOD', 'BAD', 'UNCERTAIN', 'OOR')),
    CONSTRAINT telemetry_node CHECK (node_id BETWEEN 1 AND 1000)
) PARTITION BY RANGE (timestamp);
CREATE INDEX idx_telemetry_plant ON telemetry (plant, timestamp);
CREATE INDEX idx_telemetry_tag ON telemetry (tag, timestamp);
CREATE INDEX idx_telemetry_node ON telemetry (node_id, timestamp);

CREATE TABLE events (
    event_id   uuid             NOT NULL,
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
    extra      jsonb,
    PRIMARY KEY (event_id, timestamp),
    CONSTRAINT events_quality CHECK (quality IN ('GOOD', 'BAD', 'UNCERTAIN', 'OOR')),
    CONSTRAINT events_node CHECK (node_id BETWEEN 1 AND 1000)
) PARTITION BY RANGE (timestamp);
CREATE INDEX idx_events_plant ON events (plant, timestamp);
CREATE INDEX idx_events_tag ON events (tag, timestamp);
CREATE INDEX idx_events_node ON events (node_id, timestamp);

CREATE TABLE alarms (
    event_id   uuid             NOT NULL,
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
    extra      jsonb,
    severity   varchar(16)      NOT NULL,
    PRIMARY KEY (event_id, timestamp),
    CONSTRAINT alarms_quality CHECK (quality IN ('GOOD', 'BAD', 'UNCERTAIN', 'OOR')),
    CONSTRAINT alarms_node CHECK (node_id BETWEEN 1 AND 1000),
    CONSTRAINT alarms_severity CHECK (severity IN ('LOW', 'MEDIUM', 'HIGH', 'CRITICAL'))
) PARTITION BY RANGE (timestamp);
CREATE INDEX idx_alarms_plant ON alarms (plant, timestamp);
CREATE INDEX idx_alarms_severity ON alarms (severity, timestamp);
CREATE INDEX idx_alarms_tag ON alarms (tag, timestamp);
CREATE INDEX idx_alarms_node ON alarms (node_id, timestamp);

-- Months are made ahead; what is of no month that was made yet waits here.
CREATE TABLE telemetry_default PARTITION OF telemetry DEFAULT;
CREATE TABLE events_default PARTITION OF events DEFAULT;
CREATE TABLE alarms_default PARTITION OF alarms DEFAULT;

-- Where each partition of a group goes on.
CREATE TABLE bus_offsets (
    consumer_group varchar(255) NOT NULL,
    topic          varchar(249) NOT NULL,
    partition      integer      NOT NULL,
    next_offset    bigint       NOT NULL,
    updated_at     timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_group, topic, partition),
    CONSTRAINT bus_offsets_values CHECK (partition >= 0 AND next_offset >= 0)
) WITH (fillfactor = 50);

-- The lowest offset of a day's events, for a replay by time.
CREATE TABLE bus_marks (
    consumer_group varchar(255) NOT NULL,
    topic          varchar(249) NOT NULL,
    partition      integer      NOT NULL,
    day            date         NOT NULL,
    first_offset   bigint       NOT NULL,
    PRIMARY KEY (consumer_group, topic, partition, day)
);

-- What the group gave up on the inline bus; a broker keeps its own.
CREATE TABLE historian_dead_letters (
    id               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer_group   text        NOT NULL,
    message_id       text        NOT NULL,
    topic            text        NOT NULL,
    routing_key      text        NOT NULL,
    message_key      text,
    headers          jsonb       NOT NULL,
    body             bytea       NOT NULL,
    cause_code       text        NOT NULL,
    cause_message    text        NOT NULL,
    attempts         integer     NOT NULL,
    dead_lettered_at timestamptz NOT NULL,
    CONSTRAINT historian_dead_letters_once UNIQUE (consumer_group, message_id),
    CONSTRAINT historian_dead_letters_cause
        CHECK (char_length(cause_code) BETWEEN 1 AND 255 AND char_length(cause_message) <= 500)
);

CREATE TABLE api_tokens (
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

-- What operators did.
CREATE TABLE operator_audit (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT now(),
    actor_kind  text        NOT NULL,
    actor       text        NOT NULL,
    action      text        NOT NULL,
    parameters  jsonb       NOT NULL,
    changed     bigint      NOT NULL,
    CONSTRAINT operator_audit_actor
        CHECK (actor_kind IN ('token', 'user') AND char_length(actor) BETWEEN 1 AND 255),
    CONSTRAINT operator_audit_action CHECK (action ~ '^[a-z][a-z_.]{0,62}$'),
    CONSTRAINT operator_audit_parameters CHECK (jsonb_typeof(parameters) = 'object')
);
CREATE INDEX operator_audit_at ON operator_audit (at, id);

-- Alarms after ISA-18.2 ----------------------------------------------------------------------------

CREATE TABLE alarm_state (
    plant            varchar(64)   NOT NULL,
    area             varchar(64)   NOT NULL,
    unit_name        varchar(64)   NOT NULL,
    tag              varchar(128)  NOT NULL,
    state            text          NOT NULL,
    severity         varchar(16)   NOT NULL,
    value            double precision NOT NULL,
    unit             varchar(32)   NOT NULL,
    last_raised_at   timestamptz,
    last_cleared_at  timestamptz,
    acknowledged_at  timestamptz,
    acknowledged_by  text,
    shelved_until    timestamptz,
    shelved_at       timestamptz,
    shelved_by       text,
    shelf_reason     text,
    -- The latest transitions to active, the newest last; as many as chattering is judged by.
    raises           timestamptz[] NOT NULL DEFAULT '{}',
    chattering_until timestamptz,
    occurrences      bigint        NOT NULL DEFAULT 0,
    updated_at       timestamptz   NOT NULL DEFAULT now(),
    PRIMARY KEY (plant, area, unit_name, tag),
    CONSTRAINT alarm_state_state CHECK (state IN
        ('normal', 'active_unacknowledged', 'active_acknowledged', 'cleared_unacknowledged')),
    CONSTRAINT alarm_state_severity CHECK (severity IN ('LOW', 'MEDIUM', 'HIGH', 'CRITICAL')),
    CONSTRAINT alarm_state_shelf CHECK ((shelved_until IS NULL) = (shelved_by IS NULL)
        AND (shelved_until IS NULL) = (shelved_at IS NULL)
        AND (shelved_until IS NULL) = (shelf_reason IS NULL))
) WITH (fillfactor = 70);
CREATE INDEX alarm_state_active ON alarm_state (last_raised_at)
    WHERE state IN ('active_unacknowledged', 'active_acknowledged');
CREATE INDEX alarm_state_shelves ON alarm_state (shelved_until) WHERE shelved_until IS NOT NULL;

CREATE TABLE alarm_journal (
    id          bigint       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    plant       varchar(64)  NOT NULL,
    area        varchar(64)  NOT NULL,
    unit_name   varchar(64)  NOT NULL,
    tag         varchar(128) NOT NULL,
    at          timestamptz  NOT NULL,
    recorded_at timestamptz  NOT NULL DEFAULT now(),
    action      text         NOT NULL,
    from_state  text         NOT NULL,
    to_state    text         NOT NULL,
    actor_kind  text         NOT NULL,
    actor       text         NOT NULL,
    reason      text,
    event_id    uuid,
    severity    varchar(16)  NOT NULL,
    late        boolean      NOT NULL,
    announced   boolean      NOT NULL,
    CONSTRAINT alarm_journal_action CHECK (action IN
        ('raised', 'cleared', 'acknowledged', 'shelved', 'unshelved', 'chattering')),
    CONSTRAINT alarm_journal_actor CHECK (actor_kind IN ('process', 'system', 'token', 'user')),
    CONSTRAINT alarm_journal_reason CHECK (char_length(reason) <= 500)
);
CREATE INDEX alarm_journal_at ON alarm_journal (at, id);
CREATE INDEX alarm_journal_alarm ON alarm_journal (plant, area, unit_name, tag, at);
CREATE INDEX alarm_journal_announced ON alarm_journal (recorded_at) WHERE announced;

CREATE TABLE alarm_floods (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    position   text        NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    ended_at   timestamptz,
    peak       bigint      NOT NULL
);
CREATE UNIQUE INDEX alarm_floods_open ON alarm_floods (position) WHERE ended_at IS NULL;

-- What a second historian is to get: the columns of a node's outbox, deleted when delivered ---------

CREATE TABLE federation_outbox (
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
    created_at         timestamptz  NOT NULL DEFAULT now(),
    lease_token        uuid,
    lock_expires_at    timestamptz,
    last_error_code    text,
    last_error_message text,
    failed_at          timestamptz,
    failed_reason      text,
    CONSTRAINT federation_outbox_status CHECK (status IN ('PENDING', 'IN_PROGRESS', 'FAILED')),
    CONSTRAINT federation_outbox_lease CHECK ((status = 'IN_PROGRESS') = (lease_token IS NOT NULL)),
    CONSTRAINT federation_outbox_failed
        CHECK (status <> 'FAILED' OR (failed_at IS NOT NULL AND failed_reason IS NOT NULL))
) WITH (fillfactor = 70);
CREATE INDEX federation_outbox_lane ON federation_outbox
    ((0::bigint), (CASE aggregate_type WHEN 'alarm' THEN 0 WHEN 'event' THEN 1 ELSE 2 END),
     (aggregate_id::text COLLATE "C"), created_at, id)
    WHERE status IN ('PENDING', 'IN_PROGRESS');
