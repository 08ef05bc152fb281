-- What the consumers keep. docs/spec/cloud-stores.md explains every column.

-- cloud-telemetry-service --------------------------------------------------------------------------

-- The key serves three things: a second delivery meets it, a page of readings is read in its order,
-- and it holds the column the table is partitioned by.
CREATE TABLE telemetry_reading (
    tenant_id    uuid             NOT NULL,
    occurred_at  timestamptz      NOT NULL,
    event_id     uuid             NOT NULL,
    farm_id      uuid,
    barn_id      uuid,
    device_id    uuid             NOT NULL,
    session_id   uuid,
    metric_type  text             NOT NULL,
    metric_value double precision NOT NULL,
    unit         text             NOT NULL,
    quality      text,
    clock_unset  boolean          NOT NULL DEFAULT false,
    trace_id     text,
    stream       text,
    epoch        uuid,
    seq          bigint,
    stored_at    timestamptz      NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, occurred_at, event_id),
    CONSTRAINT telemetry_reading_place
        CHECK ((stream IS NULL) = (epoch IS NULL) AND (stream IS NULL) = (seq IS NULL))
) PARTITION BY RANGE (occurred_at);
CREATE INDEX telemetry_reading_series
    ON telemetry_reading (tenant_id, device_id, metric_type, occurred_at);

-- Buckets whose readings have changed since they were last computed.
CREATE TABLE telemetry_mark (
    level        text        NOT NULL,
    tenant_id    uuid        NOT NULL,
    device_id    uuid        NOT NULL,
    metric_type  text        NOT NULL,
    unit         text        NOT NULL,
    bucket_start timestamptz NOT NULL,
    marked_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (level, tenant_id, device_id, metric_type, unit, bucket_start),
    CONSTRAINT telemetry_mark_level CHECK (level IN ('1m', '1h', '1d'))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE INDEX telemetry_mark_ripe ON telemetry_mark (level, marked_at);

CREATE TABLE telemetry_aggregate (
    tenant_id          uuid             NOT NULL,
    aggregation_window text             NOT NULL,
    bucket_start       timestamptz      NOT NULL,
    device_id          uuid             NOT NULL,
    metric_type        text             NOT NULL,
    unit               text             NOT NULL,
    farm_id            uuid,
    barn_id            uuid,
    sample_count       bigint           NOT NULL,
    sum_value          double precision NOT NULL,
    avg_value          double precision NOT NULL,
    min_value          double precision NOT NULL,
    max_value          double precision NOT NULL,
    version            bigint           NOT NULL DEFAULT 1,
    published_version  bigint           NOT NULL DEFAULT 0,
    published_at       timestamptz,
    changed_since      timestamptz,
    publish_at         timestamptz,
    updated_at         timestamptz      NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, aggregation_window, bucket_start, device_id, metric_type, unit),
    CONSTRAINT telemetry_aggregate_window CHECK (aggregation_window IN ('1m', '1h', '1d')),
    CONSTRAINT telemetry_aggregate_count CHECK (sample_count >= 1),
    CONSTRAINT telemetry_aggregate_version
        CHECK (version >= 1 AND published_version BETWEEN 0 AND version),
    CONSTRAINT telemetry_aggregate_due CHECK ((publish_at IS NULL) = (changed_since IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX telemetry_aggregate_series ON telemetry_aggregate
    (tenant_id, device_id, metric_type, unit, aggregation_window, bucket_start);
CREATE INDEX telemetry_aggregate_publish ON telemetry_aggregate (publish_at)
    WHERE publish_at IS NOT NULL;

CREATE TABLE telemetry_latest (
    tenant_id    uuid             NOT NULL,
    device_id    uuid             NOT NULL,
    metric_type  text             NOT NULL,
    unit         text             NOT NULL,
    farm_id      uuid,
    barn_id      uuid,
    metric_value double precision NOT NULL,
    quality      text,
    occurred_at  timestamptz      NOT NULL,
    event_id     uuid             NOT NULL,
    PRIMARY KEY (tenant_id, device_id, metric_type, unit)
) WITH (fillfactor = 70);

-- A half that has not come yet is null: `finalized` may arrive before `created`.
CREATE TABLE weighvision_session (
    tenant_id           uuid        NOT NULL,
    session_id          uuid        NOT NULL,
    farm_id             uuid        NOT NULL,
    barn_id             uuid        NOT NULL,
    device_id           uuid        NOT NULL,
    status              text        NOT NULL GENERATED ALWAYS AS
        (CASE WHEN finalized_at IS NULL THEN 'created' ELSE 'finalized' END) STORED,
    started_at          timestamptz NOT NULL GENERATED ALWAYS AS
        (coalesce(created_at, finalized_at)) STORED,
    created_event_id    uuid,
    created_at          timestamptz,
    batch_id            uuid,
    initial_weight_kg   double precision,
    finalized_event_id  uuid,
    finalized_at        timestamptz,
    final_weight_kg     double precision,
    image_count         bigint,
    inference_result_id uuid,
    stored_at           timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, session_id),
    CONSTRAINT weighvision_session_created
        CHECK ((created_at IS NULL) = (created_event_id IS NULL)),
    CONSTRAINT weighvision_session_finalized
        CHECK ((finalized_at IS NULL) = (finalized_event_id IS NULL))
);
CREATE INDEX weighvision_session_started
    ON weighvision_session (tenant_id, started_at DESC, session_id DESC);

CREATE TABLE inference_result (
    tenant_id           uuid             NOT NULL,
    inference_result_id uuid             NOT NULL,
    event_id            uuid             NOT NULL,
    farm_id             uuid             NOT NULL,
    barn_id             uuid             NOT NULL,
    device_id           uuid             NOT NULL,
    session_id          uuid,
    occurred_at         timestamptz      NOT NULL,
    predicted_weight_kg double precision NOT NULL,
    confidence          double precision NOT NULL,
    model_version       text             NOT NULL,
    trace_id            text,
    stored_at           timestamptz      NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, inference_result_id),
    CONSTRAINT inference_result_confidence CHECK (confidence BETWEEN 0 AND 1)
);
CREATE INDEX inference_result_time
    ON inference_result (tenant_id, occurred_at DESC, inference_result_id DESC);
CREATE INDEX inference_result_session ON inference_result (tenant_id, session_id, occurred_at)
    WHERE session_id IS NOT NULL;

CREATE TABLE sync_batch (
    tenant_id       uuid        NOT NULL,
    batch_id        text        NOT NULL,
    edge_cluster_id text,
    sent_event_id   uuid,
    sent_at         timestamptz,
    sent_count      bigint,
    acked_event_id  uuid,
    acked_at        timestamptz,
    acked_count     bigint,
    status          text        NOT NULL GENERATED ALWAYS AS
        (CASE WHEN acked_at IS NULL THEN 'sent' ELSE 'acked' END) STORED,
    first_at        timestamptz NOT NULL GENERATED ALWAYS AS
        (coalesce(sent_at, acked_at)) STORED,
    stored_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, batch_id),
    CONSTRAINT sync_batch_sent CHECK ((sent_at IS NULL) = (sent_event_id IS NULL)),
    CONSTRAINT sync_batch_acked CHECK ((acked_at IS NULL) = (acked_event_id IS NULL))
);
CREATE INDEX sync_batch_first ON sync_batch (tenant_id, first_at DESC, batch_id DESC);

-- Events of types that have no table of their own: nothing that was accepted is without a place.
CREATE TABLE event_journal (
    tenant_id   uuid        NOT NULL,
    occurred_at timestamptz NOT NULL,
    event_id    uuid        NOT NULL,
    event_type  text        NOT NULL,
    farm_id     uuid,
    barn_id     uuid,
    device_id   uuid,
    session_id  uuid,
    trace_id    text,
    payload     jsonb       NOT NULL,
    stored_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, occurred_at, event_id)
) PARTITION BY RANGE (occurred_at);

-- cloud-media-store --------------------------------------------------------------------------------

CREATE TABLE media_object (
    tenant_id          uuid        NOT NULL,
    media_id           uuid        NOT NULL,
    event_id           uuid        NOT NULL,
    farm_id            uuid        NOT NULL,
    barn_id            uuid        NOT NULL,
    device_id          uuid        NOT NULL,
    session_id         uuid,
    occurred_at        timestamptz NOT NULL,
    path               text        NOT NULL,
    mime_type          text        NOT NULL,
    size_bytes         bigint      NOT NULL,
    trace_id           text,
    stored_at          timestamptz NOT NULL DEFAULT now(),
    copy_status        text        NOT NULL DEFAULT 'pending',
    copy_attempts      integer     NOT NULL DEFAULT 0,
    copy_next_at       timestamptz NOT NULL DEFAULT now(),
    copy_lease_token   uuid,
    copy_lease_until   timestamptz,
    copy_error_code    text,
    copy_error_message text,
    copied_at          timestamptz,
    copied_bytes       bigint,
    copied_sha256      bytea,
    PRIMARY KEY (tenant_id, media_id),
    CONSTRAINT media_object_size CHECK (size_bytes >= 0),
    CONSTRAINT media_object_copy_status
        CHECK (copy_status IN ('pending', 'copying', 'copied', 'failed')),
    CONSTRAINT media_object_copy_lease
        CHECK ((copy_status = 'copying')
               = (copy_lease_token IS NOT NULL AND copy_lease_until IS NOT NULL)),
    CONSTRAINT media_object_copied
        CHECK (copy_status <> 'copied'
               OR (copied_at IS NOT NULL AND copied_bytes = size_bytes
                   AND octet_length(copied_sha256) = 32))
);
CREATE INDEX media_object_time ON media_object (tenant_id, occurred_at DESC, media_id DESC);
CREATE INDEX media_object_session ON media_object (tenant_id, session_id, occurred_at)
    WHERE session_id IS NOT NULL;
CREATE INDEX media_object_copy ON media_object (copy_next_at) WHERE copy_status = 'pending';
CREATE INDEX media_object_lease ON media_object (copy_lease_until) WHERE copy_status = 'copying';

-- cloud-analytics-service --------------------------------------------------------------------------

-- Ids of the readings that are in the sums below: a second delivery must not be added again.
CREATE TABLE kpi_seen (
    tenant_id   uuid        NOT NULL,
    occurred_at timestamptz NOT NULL,
    event_id    uuid        NOT NULL,
    PRIMARY KEY (tenant_id, occurred_at, event_id)
) PARTITION BY RANGE (occurred_at);

-- A farm or barn that is not known is the nil UUID, because a key holds no null.
CREATE TABLE kpi_minute (
    tenant_id    uuid             NOT NULL,
    farm_id      uuid             NOT NULL,
    barn_id      uuid             NOT NULL,
    metric_type  text             NOT NULL,
    unit         text             NOT NULL,
    minute       timestamptz      NOT NULL,
    sample_count bigint           NOT NULL,
    sum_value    double precision NOT NULL,
    min_value    double precision NOT NULL,
    max_value    double precision NOT NULL,
    PRIMARY KEY (tenant_id, farm_id, barn_id, metric_type, unit, minute)
) WITH (fillfactor = 80);

-- Days whose minutes have changed since they were last computed.
CREATE TABLE kpi_mark (
    tenant_id   uuid        NOT NULL,
    farm_id     uuid        NOT NULL,
    barn_id     uuid        NOT NULL,
    metric_type text        NOT NULL,
    unit        text        NOT NULL,
    day         date        NOT NULL,
    marked_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, farm_id, barn_id, metric_type, unit, day)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE TABLE kpi_metric_day (
    tenant_id        uuid             NOT NULL,
    day              date             NOT NULL,
    farm_id          uuid             NOT NULL,
    barn_id          uuid             NOT NULL,
    metric_type      text             NOT NULL,
    unit             text             NOT NULL,
    sample_count     bigint           NOT NULL,
    mean_value       double precision NOT NULL,
    min_value        double precision NOT NULL,
    max_value        double precision NOT NULL,
    minutes_observed integer          NOT NULL,
    minutes_in_range integer,
    range_low        double precision,
    range_high       double precision,
    updated_at       timestamptz      NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, day, farm_id, barn_id, metric_type, unit),
    CONSTRAINT kpi_metric_day_minutes
        CHECK (minutes_observed BETWEEN 1 AND 1440
               AND minutes_in_range BETWEEN 0 AND minutes_observed),
    CONSTRAINT kpi_metric_day_range
        CHECK ((minutes_in_range IS NULL) = (range_low IS NULL)
               AND (range_low IS NULL) = (range_high IS NULL))
);

CREATE TABLE kpi_hour (
    tenant_id    uuid             NOT NULL,
    hour         timestamptz      NOT NULL,
    device_id    uuid             NOT NULL,
    metric_type  text             NOT NULL,
    unit         text             NOT NULL,
    farm_id      uuid,
    barn_id      uuid,
    avg_value    double precision NOT NULL,
    min_value    double precision NOT NULL,
    max_value    double precision NOT NULL,
    event_id     uuid             NOT NULL,
    PRIMARY KEY (tenant_id, hour, device_id, metric_type, unit)
);

CREATE TABLE kpi_session (
    tenant_id           uuid        NOT NULL,
    session_id          uuid        NOT NULL,
    farm_id             uuid        NOT NULL,
    barn_id             uuid        NOT NULL,
    device_id           uuid        NOT NULL,
    created_event_id    uuid,
    created_at          timestamptz,
    batch_id            uuid,
    initial_weight_kg   double precision,
    finalized_event_id  uuid,
    finalized_at        timestamptz,
    final_weight_kg     double precision,
    image_count         bigint,
    inference_result_id uuid,
    updated_at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, session_id)
);
CREATE INDEX kpi_session_created ON kpi_session (tenant_id, created_at)
    WHERE created_at IS NOT NULL;
CREATE INDEX kpi_session_finalized ON kpi_session (tenant_id, finalized_at)
    WHERE finalized_at IS NOT NULL;
CREATE INDEX kpi_session_batch ON kpi_session (tenant_id, batch_id, finalized_at)
    WHERE batch_id IS NOT NULL AND finalized_at IS NOT NULL;

CREATE TABLE kpi_inference (
    tenant_id           uuid             NOT NULL,
    inference_result_id uuid             NOT NULL,
    event_id            uuid             NOT NULL,
    farm_id             uuid             NOT NULL,
    barn_id             uuid             NOT NULL,
    device_id           uuid             NOT NULL,
    session_id          uuid,
    occurred_at         timestamptz      NOT NULL,
    predicted_weight_kg double precision NOT NULL,
    confidence          double precision NOT NULL,
    model_version       text             NOT NULL,
    trace_id            text,
    PRIMARY KEY (tenant_id, inference_result_id)
);
CREATE INDEX kpi_inference_time ON kpi_inference (tenant_id, occurred_at);

-- Every event needs a place at once; the months get theirs when a consumer starts.
CREATE TABLE telemetry_reading_default PARTITION OF telemetry_reading DEFAULT;
CREATE TABLE event_journal_default PARTITION OF event_journal DEFAULT;
CREATE TABLE kpi_seen_default PARTITION OF kpi_seen DEFAULT;
