-- Weighing sessions, results of inference, and the jobs that make them.
-- docs/spec/sessions.md and docs/spec/inference.md explain the states.

CREATE TABLE weight_sessions (
    id                  uuid             PRIMARY KEY,
    tenant_id           uuid             NOT NULL,
    farm_id             uuid             NOT NULL,
    barn_id             uuid             NOT NULL,
    device_id           uuid             NOT NULL,
    batch_id            uuid,
    status              text             NOT NULL DEFAULT 'created',
    start_at            timestamptz      NOT NULL,
    end_at              timestamptz,
    initial_weight_kg   double precision NOT NULL,
    final_weight_kg     double precision,
    image_count         bigint,
    inference_result_id uuid,
    cancel_reason       text,
    idempotency_key     text,
    request_sha256      bytea,
    created_at          timestamptz      NOT NULL DEFAULT now(),
    updated_at          timestamptz      NOT NULL DEFAULT now(),
    CONSTRAINT weight_sessions_key UNIQUE (tenant_id, idempotency_key),
    CONSTRAINT weight_sessions_status CHECK (status IN ('created', 'finalized', 'cancelled')),
    CONSTRAINT weight_sessions_ended CHECK ((status = 'created') = (end_at IS NULL)),
    CONSTRAINT weight_sessions_finalized
        CHECK ((status = 'finalized') = (final_weight_kg IS NOT NULL)
               AND (status = 'finalized') = (image_count IS NOT NULL)
               AND (status = 'finalized' OR inference_result_id IS NULL)),
    CONSTRAINT weight_sessions_cancelled CHECK (status = 'cancelled' OR cancel_reason IS NULL),
    CONSTRAINT weight_sessions_times CHECK (end_at >= start_at),
    CONSTRAINT weight_sessions_images CHECK (image_count >= 0),
    -- Postgres sorts NaN after infinity.
    CONSTRAINT weight_sessions_weights
        CHECK (initial_weight_kg > '-Infinity' AND initial_weight_kg < 'Infinity'
               AND final_weight_kg > '-Infinity' AND final_weight_kg < 'Infinity'),
    CONSTRAINT weight_sessions_request
        CHECK ((idempotency_key IS NULL) = (request_sha256 IS NULL)
               AND octet_length(request_sha256) = 32)
);
CREATE INDEX weight_sessions_device ON weight_sessions (tenant_id, device_id, start_at DESC);
CREATE INDEX weight_sessions_state ON weight_sessions (tenant_id, status, start_at DESC);
-- The list's order.
CREATE INDEX weight_sessions_start ON weight_sessions (tenant_id, start_at DESC, id DESC);

-- A session ends once, and what was said of it then stays: whoever writes the SQL.
CREATE FUNCTION weight_sessions_one_way() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.tenant_id, NEW.start_at) IS DISTINCT FROM (OLD.id, OLD.tenant_id, OLD.start_at) THEN
        RAISE EXCEPTION 'a session keeps its id, its tenant and its start' USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.status <> 'created'
       AND (NEW.status, NEW.end_at, NEW.initial_weight_kg, NEW.final_weight_kg, NEW.image_count,
            NEW.inference_result_id, NEW.cancel_reason)
           IS DISTINCT FROM
           (OLD.status, OLD.end_at, OLD.initial_weight_kg, OLD.final_weight_kg, OLD.image_count,
            OLD.inference_result_id, OLD.cancel_reason)
    THEN
        RAISE EXCEPTION 'the session is %: it does not change any more', OLD.status
            USING ERRCODE = 'check_violation';
    END IF;
    NEW.updated_at := now();
    RETURN NEW;
END
$$;
CREATE TRIGGER weight_sessions_one_way BEFORE UPDATE ON weight_sessions
    FOR EACH ROW EXECUTE FUNCTION weight_sessions_one_way();

CREATE TABLE inference_results (
    id                  uuid             PRIMARY KEY,
    tenant_id           uuid             NOT NULL,
    farm_id             uuid             NOT NULL,
    barn_id             uuid             NOT NULL,
    device_id           uuid             NOT NULL,
    session_id          uuid,
    media_id            uuid,
    predicted_weight_kg double precision NOT NULL,
    predicted_size      text,
    confidence          double precision NOT NULL,
    model_version       text             NOT NULL,
    occurred_at         timestamptz      NOT NULL,
    request_sha256      bytea,
    created_at          timestamptz      NOT NULL DEFAULT now(),
    CONSTRAINT inference_results_weight
        CHECK (predicted_weight_kg > '-Infinity' AND predicted_weight_kg < 'Infinity'),
    CONSTRAINT inference_results_size CHECK (char_length(predicted_size) BETWEEN 1 AND 64),
    CONSTRAINT inference_results_confidence CHECK (confidence BETWEEN 0 AND 1),
    CONSTRAINT inference_results_model CHECK (char_length(model_version) BETWEEN 1 AND 128),
    CONSTRAINT inference_results_request CHECK (octet_length(request_sha256) = 32)
);
CREATE INDEX inference_results_session ON inference_results (tenant_id, session_id);
CREATE INDEX inference_results_device ON inference_results (tenant_id, device_id, occurred_at DESC);
-- The list's order.
CREATE INDEX inference_results_time ON inference_results (tenant_id, occurred_at DESC, id DESC);
CREATE INDEX inference_results_media ON inference_results (tenant_id, media_id) WHERE media_id IS NOT NULL;

-- Images that wait for the model. A job that is done is gone: its result has its id.
CREATE TABLE inference_jobs (
    id                 uuid        PRIMARY KEY,
    tenant_id          uuid        NOT NULL,
    media_id           uuid        NOT NULL,
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
    last_stderr        text,
    failed_at          timestamptz,
    dlq_reason         text,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT inference_jobs_media UNIQUE (tenant_id, media_id),
    CONSTRAINT inference_jobs_status CHECK (status IN ('pending', 'claimed', 'dlq')),
    CONSTRAINT inference_jobs_attempts CHECK (attempt_count >= 0),
    CONSTRAINT inference_jobs_lease
        CHECK ((status = 'claimed') = (lease_token IS NOT NULL)
               AND (status <> 'claimed' OR (claimed_by IS NOT NULL AND claimed_at IS NOT NULL
                                            AND lease_expires_at IS NOT NULL))),
    CONSTRAINT inference_jobs_dead
        CHECK ((status = 'dlq') = (failed_at IS NOT NULL) AND (status = 'dlq') = (dlq_reason IS NOT NULL))
) WITH (fillfactor = 70);
-- The engine's lane: every job is one of its own. The rank is of no meaning, but an index needs a column.
CREATE INDEX inference_jobs_lane ON inference_jobs (tenant_id, (0 * attempt_count), id, id)
    WHERE status IN ('pending', 'claimed');
CREATE INDEX inference_jobs_due ON inference_jobs (next_attempt_at)
    WHERE status IN ('pending', 'claimed');

CREATE FUNCTION inference_jobs_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('inference_jobs', '');
    RETURN NULL;
END
$$;
CREATE TRIGGER inference_jobs_added AFTER INSERT ON inference_jobs
    FOR EACH STATEMENT EXECUTE FUNCTION inference_jobs_notify();
