-- How far a deed is that takes long: a replay on a broker looks at its dead letters one by one.

ALTER TABLE operator_audit
    ADD COLUMN seen bigint,
    ADD COLUMN total bigint,
    ADD CONSTRAINT operator_audit_progress
        CHECK ((seen IS NULL) = (total IS NULL) AND seen >= 0 AND total >= 0);
