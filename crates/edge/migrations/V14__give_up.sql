-- Dead letters that an operator gives up on, with the reason in the operator's words. docs/spec/sync-forwarder.md explains it.

ALTER TABLE sync_audit DROP CONSTRAINT sync_audit_action;
ALTER TABLE sync_audit
    ADD COLUMN because text,
    ADD CONSTRAINT sync_audit_action
        CHECK (action IN ('redrive', 'unclaim_stuck', 'verify_repair', 'give_up')),
    ADD CONSTRAINT sync_audit_because
        CHECK (char_length(because) BETWEEN 1 AND 500 AND (action <> 'give_up' OR because IS NOT NULL));
