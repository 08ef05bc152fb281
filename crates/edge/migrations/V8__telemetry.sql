-- Aggregates of readings, and the marks that keep them right. docs/spec/telemetry.md explains it.

CREATE TABLE telemetry_agg (
    id              uuid             NOT NULL,
    tenant_id       uuid             NOT NULL,
    device_id       uuid             NOT NULL,
    "window"        text             NOT NULL,
    bucket_start_at timestamptz      NOT NULL,
    bucket_end_at   timestamptz      NOT NULL,
    metric_type     text             NOT NULL,
    avg_value       double precision NOT NULL,
    min_value       double precision NOT NULL,
    max_value       double precision NOT NULL,
    count           bigint           NOT NULL,
    sum_value       double precision NOT NULL,
    unit            text             NOT NULL,
    readings        bigint           NOT NULL,
    version         bigint           NOT NULL DEFAULT 1,
    emitted_version bigint           NOT NULL DEFAULT 0,
    emitted_at      timestamptz,
    updated_at      timestamptz      NOT NULL DEFAULT now(),
    PRIMARY KEY (id, bucket_start_at),
    CONSTRAINT telemetry_agg_window CHECK ("window" IN ('1m', '1h', '1d')),
    CONSTRAINT telemetry_agg_bucket CHECK (bucket_end_at > bucket_start_at),
    CONSTRAINT telemetry_agg_count CHECK (count >= 1 AND readings >= count),
    CONSTRAINT telemetry_agg_version CHECK (version >= 1 AND emitted_version BETWEEN 0 AND version)
) PARTITION BY RANGE (bucket_start_at);
CREATE TABLE telemetry_agg_default PARTITION OF telemetry_agg DEFAULT;

-- It begins as the documented index does, and is the key of a bucket too: a second one would only cost.
CREATE UNIQUE INDEX telemetry_agg_bucket_key ON telemetry_agg
    (tenant_id, device_id, "window", bucket_start_at DESC, metric_type);

-- Buckets whose aggregates may be out of date.
CREATE TABLE telemetry_dirty (
    tenant_id       uuid        NOT NULL,
    device_id       uuid        NOT NULL,
    "window"        text        NOT NULL,
    bucket_start_at timestamptz NOT NULL,
    due_at          timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, device_id, "window", bucket_start_at),
    CONSTRAINT telemetry_dirty_window CHECK ("window" IN ('1m', '1h', '1d'))
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX telemetry_dirty_due ON telemetry_dirty ("window", due_at);

CREATE TABLE telemetry_series (
    tenant_id   uuid        NOT NULL,
    device_id   uuid        NOT NULL,
    metric_type text        NOT NULL,
    unit        text        NOT NULL,
    first_at    timestamptz NOT NULL,
    last_at     timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, device_id, metric_type)
) WITH (fillfactor = 60);

-- Readings that came before this migration.
INSERT INTO telemetry_dirty (tenant_id, device_id, "window", bucket_start_at, due_at)
SELECT DISTINCT tenant_id, device_id, '1m', date_bin('1 minute', occurred_at, '2000-01-01 00:00:00+00'), now()
FROM telemetry_raw;

-- Sequences whose readings stay at the site by configuration, until the cloud is told of them.
ALTER TABLE ledger_frontier ADD COLUMN kept bigint[] NOT NULL DEFAULT '{}',
    ADD CONSTRAINT ledger_frontier_kept CHECK (cardinality(kept) % 2 = 0);
ALTER TABLE ledger_tombstone DROP CONSTRAINT ledger_tombstone_reason;
ALTER TABLE ledger_tombstone ADD CONSTRAINT ledger_tombstone_reason
    CHECK (reason IN ('drop_oldest', 'expired', 'disk_full', 'corrupt', 'lost', 'unsendable',
                      'quarantined', 'duplicate', 'kept_at_site'));
