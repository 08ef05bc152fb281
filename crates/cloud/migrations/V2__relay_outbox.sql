-- What must go to the bus: written by ingestion, worked off by the relay.

CREATE TABLE relay_outbox (
    id                 bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id          uuid        NOT NULL,
    event_id           uuid        NOT NULL,
    event_type         text        NOT NULL,
    occurred_at        timestamptz NOT NULL,
    trace_id           text,
    routing_key        text        NOT NULL,
    ordering_key       text,
    priority           integer     NOT NULL DEFAULT 0,
    envelope           bytea       NOT NULL,
    stream             text,
    epoch              uuid,
    seq                bigint,
    traceparent        text,
    status             text        NOT NULL DEFAULT 'pending',
    attempt_count      integer     NOT NULL DEFAULT 0,
    last_attempt_at    timestamptz,
    next_attempt_at    timestamptz NOT NULL DEFAULT now(),
    claimed_by         text,
    claimed_at         timestamptz,
    lease_expires_at   timestamptz,
    lease_token        uuid,
    last_error_code    text,
    last_error_message text,
    failed_at          timestamptz,
    dlq_reason         text,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT relay_outbox_status
        CHECK (status IN ('pending', 'claimed', 'acked', 'dlq', 'failed')),
    CONSTRAINT relay_outbox_attempts CHECK (attempt_count >= 0),
    CONSTRAINT relay_outbox_lease
        CHECK (status <> 'claimed'
               OR (claimed_by IS NOT NULL AND claimed_at IS NOT NULL
                   AND lease_expires_at IS NOT NULL AND lease_token IS NOT NULL)),
    CONSTRAINT relay_outbox_dead
        CHECK (status <> 'dlq' OR (failed_at IS NOT NULL AND dlq_reason IS NOT NULL)),
    CONSTRAINT relay_outbox_place
        CHECK ((stream IS NULL) = (epoch IS NULL) AND (stream IS NULL) = (seq IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX relay_outbox_claim ON relay_outbox (priority DESC, id) WHERE status = 'pending';
CREATE INDEX relay_outbox_order ON relay_outbox (tenant_id, ordering_key, id)
    WHERE status IN ('pending', 'claimed') AND ordering_key IS NOT NULL;
CREATE INDEX relay_outbox_lease ON relay_outbox (lease_expires_at) WHERE status = 'claimed';
CREATE INDEX relay_outbox_acked ON relay_outbox (id) WHERE status = 'acked';
CREATE INDEX relay_outbox_dead ON relay_outbox (tenant_id, failed_at DESC)
    WHERE status IN ('dlq', 'failed');

CREATE FUNCTION relay_outbox_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := now();
    RETURN NEW;
END
$$;
CREATE TRIGGER relay_outbox_updated_at BEFORE UPDATE ON relay_outbox
    FOR EACH ROW EXECUTE FUNCTION relay_outbox_touch();
