-- The site's tables of seed 000 that ingress writes. docs/spec/edge-tables.md explains every column.

CREATE TABLE telemetry_raw (
    id           uuid             NOT NULL,
    tenant_id    uuid             NOT NULL,
    farm_id      uuid,
    barn_id      uuid,
    device_id    uuid             NOT NULL,
    occurred_at  timestamptz      NOT NULL,
    metric_type  text             NOT NULL,
    metric_value double precision NOT NULL,
    unit         text             NOT NULL,
    ingested_at  timestamptz      NOT NULL DEFAULT now(),
    quality      text,
    stream       text,
    epoch        uuid,
    seq          bigint,
    PRIMARY KEY (id, occurred_at),
    CONSTRAINT telemetry_raw_quality CHECK (quality IN ('GOOD', 'BAD', 'UNCERTAIN', 'OOR'))
) PARTITION BY RANGE (occurred_at);

-- Rows whose month has no partition: clocks that were never set, and data older than any partition.
CREATE TABLE telemetry_raw_default PARTITION OF telemetry_raw DEFAULT;

CREATE INDEX telemetry_raw_device ON telemetry_raw (tenant_id, device_id, occurred_at DESC);
CREATE INDEX telemetry_raw_tenant ON telemetry_raw (tenant_id, occurred_at DESC);

CREATE TABLE ingress_dedupe (
    tenant_id     uuid        NOT NULL,
    event_id      uuid        NOT NULL,
    first_seen_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT ingress_dedupe_key UNIQUE (tenant_id, event_id)
);
CREATE INDEX ingress_dedupe_first_seen ON ingress_dedupe (first_seen_at ASC);

CREATE TABLE sync_outbox (
    id                 uuid        PRIMARY KEY,
    tenant_id          uuid        NOT NULL,
    farm_id            uuid,
    barn_id            uuid,
    device_id          uuid,
    session_id         uuid,
    event_type         text        NOT NULL,
    occurred_at        timestamptz,
    trace_id           text,
    payload_json       jsonb       NOT NULL,
    payload_size_bytes integer,
    status             text        NOT NULL DEFAULT 'pending',
    priority           integer     NOT NULL DEFAULT 0,
    attempt_count      integer     NOT NULL DEFAULT 0,
    last_attempt_at    timestamptz,
    next_attempt_at    timestamptz NOT NULL DEFAULT now(),
    claimed_by         text,
    claimed_at         timestamptz,
    lease_expires_at   timestamptz,
    last_error_code    text,
    last_error_message text,
    failed_at          timestamptz,
    dlq_reason         text,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    stream             text,
    epoch              uuid,
    seq                bigint,
    lease_token        uuid,
    CONSTRAINT sync_outbox_tenant_key UNIQUE (tenant_id, id),
    CONSTRAINT sync_outbox_status
        CHECK (status IN ('pending', 'claimed', 'sending', 'acked', 'dlq', 'failed')),
    CONSTRAINT sync_outbox_attempts CHECK (attempt_count >= 0),
    CONSTRAINT sync_outbox_lease
        CHECK (status NOT IN ('claimed', 'sending')
               OR (claimed_by IS NOT NULL AND claimed_at IS NOT NULL AND lease_expires_at IS NOT NULL)),
    CONSTRAINT sync_outbox_dead
        CHECK (status <> 'dlq' OR (failed_at IS NOT NULL AND dlq_reason IS NOT NULL))
);
CREATE INDEX sync_outbox_work ON sync_outbox (status, next_attempt_at, occurred_at);
CREATE INDEX sync_outbox_tenant ON sync_outbox (tenant_id, occurred_at DESC);
CREATE INDEX sync_outbox_lease_expiry ON sync_outbox (claimed_by, lease_expires_at)
    WHERE claimed_by IS NOT NULL;
-- The claim's own index: it is in the claim's order, and holds pending rows only, so that a claim reads
-- what it takes and nothing else, at any backlog.
CREATE INDEX sync_outbox_claim ON sync_outbox (priority DESC, (coalesce(occurred_at, created_at)) ASC)
    WHERE status = 'pending';

CREATE FUNCTION sync_outbox_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := now();
    RETURN NEW;
END
$$;
CREATE TRIGGER sync_outbox_updated_at BEFORE UPDATE ON sync_outbox
    FOR EACH ROW EXECUTE FUNCTION sync_outbox_touch();

CREATE TABLE sync_state (
    tenant_id            uuid        PRIMARY KEY,
    last_acked_event_id  uuid,
    last_acked_at        timestamptz,
    last_sent_batch_id   text,
    consecutive_failures integer     NOT NULL DEFAULT 0,
    paused_until         timestamptz,
    CONSTRAINT sync_state_failures CHECK (consecutive_failures >= 0)
);
