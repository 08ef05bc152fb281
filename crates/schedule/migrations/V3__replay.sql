-- A session that reads the images of another again. docs/spec/schedule.md says what for. It stands in the order of sessions where that one does.
ALTER TABLE schedule_ingest.capture_session
    ADD COLUMN replay_of uuid REFERENCES schedule_ingest.capture_session (id);
