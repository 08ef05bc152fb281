-- The person that a token acted for, where the request named one: a console acts with a token of its own.
ALTER TABLE alarm_journal ADD COLUMN acting_for text,
    ADD CONSTRAINT alarm_journal_acting_for CHECK (char_length(acting_for) <= 100);
