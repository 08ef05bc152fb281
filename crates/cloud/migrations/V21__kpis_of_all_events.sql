-- KPIs of images and of batches, and of sites that send aggregates in place of readings. docs/spec/cloud-stores.md explains it.

-- Images, one row each: counted when asked for.
CREATE TABLE kpi_image (
    tenant_id   uuid        NOT NULL,
    media_id    uuid        NOT NULL,
    event_id    uuid        NOT NULL,
    farm_id     uuid        NOT NULL,
    barn_id     uuid        NOT NULL,
    occurred_at timestamptz NOT NULL,
    size_bytes  bigint      NOT NULL,
    PRIMARY KEY (tenant_id, media_id)
);
CREATE INDEX kpi_image_time ON kpi_image (tenant_id, occurred_at);
INSERT INTO kpi_image (tenant_id, media_id, event_id, farm_id, barn_id, occurred_at, size_bytes)
SELECT tenant_id, media_id, event_id, farm_id, barn_id, occurred_at, size_bytes FROM media_object;

-- Batches of the sites, one row each, as in sync_batch.
CREATE TABLE kpi_sync_batch (
    tenant_id       uuid        NOT NULL,
    batch_id        text        NOT NULL,
    edge_cluster_id text,
    sent_event_id   uuid,
    sent_at         timestamptz,
    sent_count      bigint,
    acked_event_id  uuid,
    acked_at        timestamptz,
    acked_count     bigint,
    PRIMARY KEY (tenant_id, batch_id)
);
CREATE INDEX kpi_sync_batch_sent ON kpi_sync_batch (tenant_id, sent_at) WHERE sent_at IS NOT NULL;
INSERT INTO kpi_sync_batch (tenant_id, batch_id, edge_cluster_id, sent_event_id, sent_at, sent_count,
    acked_event_id, acked_at, acked_count)
SELECT tenant_id, batch_id, edge_cluster_id, sent_event_id, sent_at, sent_count, acked_event_id, acked_at,
    acked_count FROM sync_batch;

-- Aggregates that a site made itself, the newest of each. A farm or barn that is not known is the nil UUID.
CREATE TABLE kpi_edge_bucket (
    tenant_id          uuid             NOT NULL,
    farm_id            uuid             NOT NULL,
    barn_id            uuid             NOT NULL,
    device_id          uuid             NOT NULL,
    metric_type        text             NOT NULL,
    unit               text             NOT NULL,
    aggregation_window text             NOT NULL,
    bucket_start       timestamptz      NOT NULL,
    sample_count       bigint           NOT NULL,
    sum_value          double precision NOT NULL,
    min_value          double precision NOT NULL,
    max_value          double precision NOT NULL,
    event_id           uuid             NOT NULL,
    PRIMARY KEY (tenant_id, device_id, metric_type, unit, aggregation_window, bucket_start),
    CONSTRAINT kpi_edge_bucket_window CHECK (aggregation_window IN ('1m', '1h', '1d')),
    CONSTRAINT kpi_edge_bucket_count CHECK (sample_count >= 1)
) WITH (fillfactor = 80);
CREATE INDEX kpi_edge_bucket_barn ON kpi_edge_bucket
    (tenant_id, farm_id, barn_id, metric_type, unit, bucket_start);
