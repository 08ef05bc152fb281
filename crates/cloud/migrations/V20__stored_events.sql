-- Whether everything that was accepted is in a store, and taking in again what is not: docs/spec/verify.md, "Stored in the cloud".

-- Events that were stored and whose id no row of a store need have: an aggregate has no id, and of several events about one
-- session, result, batch or image one counts. Kept as long as ingestion remembers ids.
CREATE TABLE stored_event (
    tenant_id uuid        NOT NULL,
    event_id  uuid        NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, event_id)
) WITH (fillfactor = 90);
CREATE INDEX stored_event_age ON stored_event (stored_at);

-- Since when the table above is complete. What was accepted before cannot be told.
CREATE TABLE stored_event_since (
    id    boolean     PRIMARY KEY DEFAULT true,
    since timestamptz NOT NULL,
    CONSTRAINT stored_event_since_one CHECK (id)
);
INSERT INTO stored_event_since (since)
SELECT CASE WHEN EXISTS (SELECT FROM ingest_dedupe) THEN now() ELSE '-infinity' END;

-- Ids that are to be published again when their site sends them again. Looked up for duplicates alone.
CREATE TABLE ingest_again (
    tenant_id uuid        NOT NULL,
    event_id  uuid        NOT NULL,
    asked_at  timestamptz NOT NULL DEFAULT now(),
    -- A token's id, or a user's name.
    asked_by  text        NOT NULL,
    PRIMARY KEY (tenant_id, event_id),
    CONSTRAINT ingest_again_asked_by CHECK (char_length(asked_by) BETWEEN 1 AND 255)
);
CREATE INDEX ingest_again_age ON ingest_again (asked_at);

-- Rows are stored in the order of time, so a few bytes for each megabyte say which hour it holds.
CREATE INDEX telemetry_reading_stored ON telemetry_reading USING brin (stored_at) WITH (autosummarize = on);
CREATE INDEX event_journal_stored ON event_journal USING brin (stored_at) WITH (autosummarize = on);
CREATE INDEX bus_dead_letter_message ON bus_dead_letter (message_id);
