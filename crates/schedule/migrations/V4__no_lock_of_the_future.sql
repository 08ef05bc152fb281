-- A lock that was taken with plain SQL counts from `locked_at`, which a backend may have read off its own clock. One that runs hours ahead would hold the
-- session for hours after its worker died, against us and against everybody who compares `locked_at` with now(). So no lock is of the future: such a time
-- becomes that of the database. A time of the past stays as it is written. Beside that the function is as it was.
CREATE OR REPLACE FUNCTION schedule_ingest.capture_session_changes() RETURNS trigger LANGUAGE plpgsql AS $$
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
        -- A clock that runs ahead holds nothing for longer; a null stays null, and is refused.
        NEW.locked_at := CASE WHEN NEW.locked_at > clock_timestamp() THEN clock_timestamp() ELSE NEW.locked_at END;
        IF NEW.locked_by IS NULL OR NEW.locked_at IS NULL THEN
            PERFORM schedule_ingest.refuse('a claim sets locked_by and locked_at');
        END IF;
        NEW.lease_state := 'claimed';
        NEW.lease_token := gen_random_uuid();
        NEW.lease_expires_at := NEW.locked_at + schedule_ingest.stale_after();
    ELSIF NEW.state = 'processing'
        AND (NEW.locked_by, NEW.locked_at) IS DISTINCT FROM (OLD.locked_by, OLD.locked_at) THEN
        NEW.locked_at := CASE WHEN NEW.locked_at > clock_timestamp() THEN clock_timestamp() ELSE NEW.locked_at END;
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

-- Locks of the future that are there already.
UPDATE schedule_ingest.capture_session SET locked_at = now() WHERE state = 'processing' AND locked_at > now();
