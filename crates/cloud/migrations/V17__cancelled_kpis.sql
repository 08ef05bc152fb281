-- A session that was cancelled is none of a barn's weighings: it is counted apart, and its weight is in no mean.
ALTER TABLE kpi_session
    ADD COLUMN cancelled_event_id uuid,
    ADD COLUMN cancelled_at       timestamptz,
    ADD COLUMN cancel_reason      text,
    ADD CONSTRAINT kpi_session_cancelled CHECK ((cancelled_at IS NULL) = (cancelled_event_id IS NULL));
CREATE INDEX kpi_session_cancelled ON kpi_session (tenant_id, cancelled_at) WHERE cancelled_at IS NOT NULL;
