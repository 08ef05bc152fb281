-- What operators did at this node, written in the transaction that does it.

CREATE TABLE operator_audit (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT now(),
    actor_kind  text        NOT NULL,
    actor       text        NOT NULL,
    action      text        NOT NULL,
    parameters  jsonb       NOT NULL,
    changed     bigint      NOT NULL,
    CONSTRAINT operator_audit_actor
        CHECK (actor_kind IN ('token', 'user') AND char_length(actor) BETWEEN 1 AND 255),
    CONSTRAINT operator_audit_action CHECK (action ~ '^[a-z][a-z_.]{0,62}$'),
    CONSTRAINT operator_audit_parameters CHECK (jsonb_typeof(parameters) = 'object')
);
CREATE INDEX operator_audit_at ON operator_audit (at, id);
