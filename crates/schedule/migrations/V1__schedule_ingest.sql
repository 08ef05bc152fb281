-- docs/spec/schedule.md is the contract of this schema. Columns and tables marked "added" are beside what backends and bots know; all of
-- them have defaults, so that plain SQL that does not name them works.

CREATE SCHEMA IF NOT EXISTS schedule_ingest;

CREATE TYPE schedule_ingest.capture_session_state AS ENUM ('pending', 'processing', 'done', 'failed');

-- How long a lock that was taken with plain SQL holds without a heartbeat.
CREATE FUNCTION schedule_ingest.stale_after() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '5 minutes' $$;

-- What every trigger of this schema refuses with: the class of a CHECK, because that is what it is.
CREATE FUNCTION schedule_ingest.refuse(why text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', why USING ERRCODE = 'check_violation';
END $$;

CREATE TABLE schedule_ingest.capture_session (
    id                 uuid PRIMARY KEY,
    user_id            bigint NOT NULL,
    state              schedule_ingest.capture_session_state NOT NULL DEFAULT 'pending',
    created_at         timestamptz NOT NULL DEFAULT now(),
    error              text,
    locked_at          timestamptz,
    locked_by          text,
    -- Added: the lease.
    lease_state        text NOT NULL DEFAULT 'pending',
    lease_token        uuid,
    lease_expires_at   timestamptz,
    attempts           integer NOT NULL DEFAULT 0,
    available_at       timestamptz NOT NULL DEFAULT now(),
    last_error_code    text,
    last_error_message text,
    -- Added: when something last came in, and when nothing more was waited for.
    active_at          timestamptz NOT NULL DEFAULT now(),
    finalized_at       timestamptz,
    CONSTRAINT capture_session_error CHECK (error IS NULL OR state = 'failed'),
    CONSTRAINT capture_session_lock CHECK (
        state = 'processing' OR (locked_at IS NULL AND locked_by IS NULL)),
    CONSTRAINT capture_session_lease_state CHECK (CASE state
        WHEN 'pending' THEN lease_state = 'pending'
        WHEN 'processing' THEN lease_state IN ('pending', 'claimed')
        WHEN 'done' THEN lease_state = 'done'
        WHEN 'failed' THEN lease_state = 'failed' END),
    CONSTRAINT capture_session_lease CHECK (
        (lease_state = 'claimed') = (lease_token IS NOT NULL)
        AND (lease_state = 'claimed') = (lease_expires_at IS NOT NULL)
        AND (lease_state <> 'claimed' OR (locked_by IS NOT NULL AND locked_at IS NOT NULL))),
    CONSTRAINT capture_session_attempts CHECK (attempts >= 0)
);

-- The lanes of the lease engine, letter by letter as its description has them.
CREATE INDEX capture_session_lanes ON schedule_ingest.capture_session
    ((0::bigint), (CASE state WHEN 'pending' THEN 0 ELSE 1 END), (id), (created_at), id)
    WHERE finalized_at IS NOT NULL AND lease_state IN ('pending', 'claimed');
CREATE INDEX capture_session_due ON schedule_ingest.capture_session (available_at)
    WHERE finalized_at IS NOT NULL AND lease_state IN ('pending', 'claimed');
CREATE INDEX capture_session_collecting ON schedule_ingest.capture_session (active_at)
    WHERE finalized_at IS NULL AND state = 'pending';
-- For whoever claims with plain SQL.
CREATE INDEX capture_session_state ON schedule_ingest.capture_session (state, created_at)
    WHERE state IN ('pending', 'processing');

CREATE FUNCTION schedule_ingest.capture_session_opens() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state <> 'pending' OR NEW.error IS NOT NULL
        OR num_nonnulls(NEW.locked_at, NEW.locked_by, NEW.lease_token, NEW.lease_expires_at) > 0 THEN
        PERFORM schedule_ingest.refuse('a capture session starts as pending, without a lock or an error');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER capture_session_opens BEFORE INSERT ON schedule_ingest.capture_session
    FOR EACH ROW EXECUTE FUNCTION schedule_ingest.capture_session_opens();

-- Keeps the documented columns and those of the lease in step, whichever of the two a writer changed, and refuses what is not in the
-- state table.
CREATE FUNCTION schedule_ingest.capture_session_changes() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    by_engine boolean := (NEW.lease_state, NEW.lease_token, NEW.lease_expires_at)
        IS DISTINCT FROM (OLD.lease_state, OLD.lease_token, OLD.lease_expires_at);
    free boolean := OLD.lease_token IS NULL OR OLD.lease_expires_at <= now();
BEGIN
    IF (NEW.id, NEW.user_id, NEW.created_at) IS DISTINCT FROM (OLD.id, OLD.user_id, OLD.created_at) THEN
        PERFORM schedule_ingest.refuse('id, user and start of a capture session do not change');
    END IF;
    IF OLD.state IN ('done', 'failed') THEN
        IF NEW IS DISTINCT FROM OLD THEN
            PERFORM schedule_ingest.refuse('a capture session that is ' || OLD.state || ' does not change');
        END IF;
        RETURN NEW;
    END IF;

    IF by_engine THEN
        -- The engine names its own columns; the documented ones follow.
        IF NEW.state IS DISTINCT FROM OLD.state THEN
            PERFORM schedule_ingest.refuse('state and lease_state are not written together');
        END IF;
        IF NEW.lease_state = 'claimed' THEN
            IF NEW.lease_token IS DISTINCT FROM OLD.lease_token AND OLD.lease_token IS NOT NULL AND NOT free THEN
                PERFORM schedule_ingest.refuse('the lease of this capture session has not expired');
            END IF;
            IF NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token THEN
                NEW.locked_at := now();
            END IF;
            NEW.state := 'processing';
        ELSIF NEW.lease_state = 'pending' AND OLD.state = 'processing' THEN
            -- Given back. Nothing returns to pending; a lock of 1970 is stale for everybody.
            NEW.locked_by := NULL;
            NEW.locked_at := 'epoch';
        ELSIF NEW.lease_state = 'done' THEN
            IF OLD.lease_state <> 'claimed' THEN
                PERFORM schedule_ingest.refuse('only a session that is processed can be done');
            END IF;
            NEW.state := 'done';
        ELSIF NEW.lease_state = 'failed' THEN
            NEW.state := 'failed';
            NEW.error := coalesce(NEW.error, CASE NEW.last_error_code
                WHEN 'LEASE_EXPIRED' THEN 'given up after ' || NEW.attempts || ' attempts: '
                ELSE '' END || NEW.last_error_message, 'failed');
        END IF;
    ELSIF NEW.state = 'processing' AND OLD.state = 'pending' THEN
        IF NEW.locked_by IS NULL OR NEW.locked_at IS NULL THEN
            PERFORM schedule_ingest.refuse('a claim sets locked_by and locked_at');
        END IF;
        NEW.lease_state := 'claimed';
        NEW.lease_token := gen_random_uuid();
        NEW.lease_expires_at := NEW.locked_at + schedule_ingest.stale_after();
    ELSIF NEW.state = 'processing'
        AND (NEW.locked_by, NEW.locked_at) IS DISTINCT FROM (OLD.locked_by, OLD.locked_at) THEN
        IF NEW.locked_by IS NULL OR NEW.locked_at IS NULL THEN
            PERFORM schedule_ingest.refuse('a session that is processed has locked_by and locked_at');
        END IF;
        IF NOT free AND NEW.locked_by IS DISTINCT FROM OLD.locked_by THEN
            PERFORM schedule_ingest.refuse('the lease of this capture session has not expired');
        END IF;
        IF free THEN
            -- Another worker, or the same after a crash: the token of before is worth nothing from here on.
            NEW.attempts := OLD.attempts + CASE WHEN OLD.lease_token IS NULL THEN 0 ELSE 1 END;
            NEW.lease_token := gen_random_uuid();
        END IF;
        NEW.lease_state := 'claimed';
        NEW.lease_expires_at := NEW.locked_at + schedule_ingest.stale_after();
    ELSIF NEW.state IS DISTINCT FROM OLD.state THEN
        IF NEW.state = 'pending' OR (OLD.state = 'pending' AND NEW.state = 'done') THEN
            PERFORM schedule_ingest.refuse(
                'a capture session does not go from ' || OLD.state || ' to ' || NEW.state);
        END IF;
        NEW.lease_state := NEW.state::text;
    END IF;

    IF NEW.state IN ('done', 'failed') THEN
        NEW.locked_at := NULL;
        NEW.locked_by := NULL;
        NEW.lease_token := NULL;
        NEW.lease_expires_at := NULL;
    END IF;
    IF NEW.state = 'processing' AND NEW.finalized_at IS NULL THEN
        NEW.finalized_at := now();
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER capture_session_changes BEFORE UPDATE ON schedule_ingest.capture_session
    FOR EACH ROW EXECUTE FUNCTION schedule_ingest.capture_session_changes();

CREATE TABLE schedule_ingest.capture_image (
    id                  uuid PRIMARY KEY,
    session_id          uuid NOT NULL REFERENCES schedule_ingest.capture_session (id),
    sequence            integer NOT NULL,
    r2_key              text NOT NULL,
    telegram_message_id bigint,
    created_at          timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT capture_image_sequence CHECK (sequence > 0),
    CONSTRAINT capture_image_order UNIQUE (session_id, sequence),
    CONSTRAINT capture_image_key UNIQUE (r2_key)
);

-- An image makes its session collect again. The update waits for a claim under way, which decides whether the image is in time.
CREATE FUNCTION schedule_ingest.capture_image_arrives() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE schedule_ingest.capture_session SET active_at = now(), finalized_at = NULL
    WHERE id = NEW.session_id AND state = 'pending';
    IF NOT FOUND AND EXISTS (SELECT FROM schedule_ingest.capture_session WHERE id = NEW.session_id) THEN
        PERFORM schedule_ingest.refuse('a capture session takes images only while it is pending');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER capture_image_arrives BEFORE INSERT ON schedule_ingest.capture_image
    FOR EACH ROW EXECUTE FUNCTION schedule_ingest.capture_image_arrives();

CREATE FUNCTION schedule_ingest.immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM schedule_ingest.refuse(TG_TABLE_NAME || ' is immutable');
    RETURN NULL;
END $$;
CREATE TRIGGER capture_image_immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON schedule_ingest.capture_image
    FOR EACH STATEMENT EXECUTE FUNCTION schedule_ingest.immutable();

CREATE TABLE schedule_ingest.day_schedule (
    user_id         bigint NOT NULL,
    schedule_date   date NOT NULL,
    current_version integer NOT NULL,
    PRIMARY KEY (user_id, schedule_date),
    CONSTRAINT day_schedule_version CHECK (current_version > 0)
);

CREATE FUNCTION schedule_ingest.day_schedule_by_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- One level is this trigger itself; the writer that may is a trigger too.
    IF pg_trigger_depth() < 2 THEN
        PERFORM schedule_ingest.refuse('day_schedule follows schedule_version and is not written directly');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER day_schedule_by_trigger BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON schedule_ingest.day_schedule
    FOR EACH STATEMENT EXECUTE FUNCTION schedule_ingest.day_schedule_by_trigger();

CREATE TABLE schedule_ingest.schedule_version (
    user_id       bigint NOT NULL,
    schedule_date date NOT NULL,
    version       integer NOT NULL,
    session_id    uuid NOT NULL REFERENCES schedule_ingest.capture_session (id),
    payload       jsonb NOT NULL,
    payload_hash  text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, schedule_date, version),
    CONSTRAINT schedule_version_session UNIQUE (session_id),
    CONSTRAINT schedule_version_number CHECK (version > 0),
    CONSTRAINT schedule_version_payload CHECK (jsonb_typeof(payload) = 'object'),
    CONSTRAINT schedule_version_hash CHECK (payload_hash <> '')
);

-- Only a gap is refused here. A version that is there already is a conflict of the key, which ON CONFLICT DO NOTHING can tell.
CREATE FUNCTION schedule_ingest.schedule_version_in_order() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    latest integer;
BEGIN
    SELECT current_version INTO latest FROM schedule_ingest.day_schedule
    WHERE user_id = NEW.user_id AND schedule_date = NEW.schedule_date;
    IF NEW.version > coalesce(latest, 0) + 1 THEN
        PERFORM schedule_ingest.refuse('the next version of this day is ' || coalesce(latest, 0) + 1);
    END IF;
    IF NOT EXISTS (SELECT FROM schedule_ingest.capture_session
        WHERE id = NEW.session_id AND user_id = NEW.user_id) THEN
        PERFORM schedule_ingest.refuse('a version belongs to a capture session of its user');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER schedule_version_in_order BEFORE INSERT ON schedule_ingest.schedule_version
    FOR EACH ROW EXECUTE FUNCTION schedule_ingest.schedule_version_in_order();

CREATE FUNCTION schedule_ingest.schedule_version_is_current() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO schedule_ingest.day_schedule AS day (user_id, schedule_date, current_version)
    VALUES (NEW.user_id, NEW.schedule_date, NEW.version)
    ON CONFLICT (user_id, schedule_date) DO UPDATE SET current_version = EXCLUDED.current_version
        WHERE day.current_version < EXCLUDED.current_version;
    RETURN NULL;
END $$;
CREATE TRIGGER schedule_version_is_current AFTER INSERT ON schedule_ingest.schedule_version
    FOR EACH ROW EXECUTE FUNCTION schedule_ingest.schedule_version_is_current();
CREATE TRIGGER schedule_version_immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON schedule_ingest.schedule_version
    FOR EACH STATEMENT EXECUTE FUNCTION schedule_ingest.immutable();

CREATE TABLE schedule_ingest.day_snapshot (
    user_id           bigint NOT NULL,
    schedule_date     date NOT NULL,
    snapshot_payload  jsonb NOT NULL,
    source_session_id uuid NOT NULL,
    updated_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, schedule_date),
    CONSTRAINT day_snapshot_payload CHECK (jsonb_typeof(snapshot_payload) = 'array')
);

CREATE TABLE schedule_ingest.schedule_event (
    event_id             uuid PRIMARY KEY,
    user_id              bigint NOT NULL,
    schedule_date        date NOT NULL,
    event_type           text NOT NULL,
    location_fingerprint text NOT NULL,
    customer_fingerprint text NOT NULL,
    old_value_hash       text NOT NULL,
    new_value_hash       text NOT NULL,
    old_value            jsonb,
    new_value            jsonb,
    detected_at          timestamptz NOT NULL DEFAULT now(),
    source_session_id    uuid NOT NULL,
    -- Added: the version that the difference was made against, 0 for none.
    base_version         integer NOT NULL DEFAULT 0,
    CONSTRAINT schedule_event_type CHECK (event_type IN ('shift_added', 'shift_removed',
        'shift_time_changed', 'shift_relocated', 'shift_retitled', 'shift_reclassified')),
    CONSTRAINT schedule_event_base CHECK (base_version >= 0),
    CONSTRAINT schedule_event_recurrence UNIQUE (user_id, schedule_date, location_fingerprint,
        customer_fingerprint, event_type, old_value_hash, new_value_hash, base_version)
);
CREATE INDEX schedule_event_session ON schedule_ingest.schedule_event (source_session_id);
CREATE TRIGGER schedule_event_immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON schedule_ingest.schedule_event
    FOR EACH STATEMENT EXECUTE FUNCTION schedule_ingest.immutable();

CREATE TABLE schedule_ingest.schedule_notification (
    notification_id   text PRIMARY KEY,
    user_id           bigint NOT NULL,
    schedule_date     date NOT NULL,
    source_session_id uuid NOT NULL,
    status            text NOT NULL DEFAULT 'pending',
    notification_type text NOT NULL,
    message           text NOT NULL,
    event_ids         jsonb NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now(),
    sent_at           timestamptz,
    CONSTRAINT schedule_notification_status CHECK (status IN ('pending', 'sent', 'failed')),
    CONSTRAINT schedule_notification_type CHECK (notification_type IN ('event', 'summary')),
    CONSTRAINT schedule_notification_events CHECK (jsonb_typeof(event_ids) = 'array'),
    CONSTRAINT schedule_notification_sent CHECK ((status = 'sent') = (sent_at IS NOT NULL))
);
CREATE INDEX schedule_notification_pending ON schedule_ingest.schedule_notification (created_at)
    WHERE status = 'pending';

CREATE FUNCTION schedule_ingest.schedule_notification_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.status <> 'pending' THEN
            PERFORM schedule_ingest.refuse('a notification starts as pending');
        END IF;
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' THEN
        IF OLD.status = 'pending' THEN
            PERFORM schedule_ingest.refuse('a pending notification is delivered, not deleted');
        END IF;
        RETURN OLD;
    END IF;
    IF (NEW.notification_id, NEW.user_id, NEW.schedule_date, NEW.source_session_id, NEW.notification_type,
            NEW.message, NEW.event_ids, NEW.created_at)
        IS DISTINCT FROM (OLD.notification_id, OLD.user_id, OLD.schedule_date, OLD.source_session_id,
            OLD.notification_type, OLD.message, OLD.event_ids, OLD.created_at) THEN
        PERFORM schedule_ingest.refuse('what a notification says does not change');
    END IF;
    IF OLD.status <> 'pending' AND (NEW.status, NEW.sent_at) IS DISTINCT FROM (OLD.status, OLD.sent_at) THEN
        PERFORM schedule_ingest.refuse('a notification that is ' || OLD.status || ' does not change');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER schedule_notification_changes BEFORE INSERT OR UPDATE OR DELETE
    ON schedule_ingest.schedule_notification
    FOR EACH ROW EXECUTE FUNCTION schedule_ingest.schedule_notification_changes();

-- Added: in which language a user is told.
CREATE TABLE schedule_ingest.user_setting (
    user_id    bigint PRIMARY KEY,
    language   text NOT NULL DEFAULT 'en',
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT user_setting_language CHECK (language ~ '^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*$')
);
