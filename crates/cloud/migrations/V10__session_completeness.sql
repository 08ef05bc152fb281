-- What a session must have to be complete, and sessions that were cancelled. docs/spec/cloud-stores.md explains it.

ALTER TABLE weighvision_session
    ADD COLUMN inference_result_count bigint,
    ADD COLUMN inference_result_ids   jsonb,
    ADD COLUMN cancelled_event_id     uuid,
    ADD COLUMN cancelled_at           timestamptz,
    ADD COLUMN cancel_reason          text,
    ADD CONSTRAINT weighvision_session_cancelled
        CHECK ((cancelled_at IS NULL) = (cancelled_event_id IS NULL)),
    ADD CONSTRAINT weighvision_session_results
        CHECK (inference_result_count >= 0 AND jsonb_typeof(inference_result_ids) = 'array');

-- Both are computed from the halves, of which there is one more now.
ALTER TABLE weighvision_session DROP COLUMN status, DROP COLUMN started_at;
ALTER TABLE weighvision_session
    ADD COLUMN status text NOT NULL GENERATED ALWAYS AS
        (CASE WHEN finalized_at IS NOT NULL THEN 'finalized'
              WHEN cancelled_at IS NOT NULL THEN 'cancelled'
              ELSE 'created' END) STORED,
    ADD COLUMN started_at timestamptz NOT NULL GENERATED ALWAYS AS
        (coalesce(created_at, finalized_at, cancelled_at)) STORED;
CREATE INDEX weighvision_session_started
    ON weighvision_session (tenant_id, started_at DESC, session_id DESC);
