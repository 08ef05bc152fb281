-- What consumers gave up on the inline bus, and what operators did about anything.

-- One row per group and message that the group gave up. docs/spec/bus.md says how it leaves again.
CREATE TABLE bus_dead_letter (
    id                     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The group that gave it up; empty: not known.
    queue                  text        NOT NULL,
    message_id             text        NOT NULL,
    -- The envelope's, where it can be read.
    tenant_id              uuid,
    exchange               text        NOT NULL,
    routing_key            text        NOT NULL,
    message_key            text,
    content_type           text,
    headers                jsonb       NOT NULL DEFAULT '{}',
    -- As it was published, byte for byte.
    body                   bytea       NOT NULL,
    cause_code             text        NOT NULL,
    cause_message          text        NOT NULL,
    attempts               integer     NOT NULL,
    replayed               integer     NOT NULL DEFAULT 0,
    deaths                 jsonb       NOT NULL DEFAULT '[]',
    first_dead_lettered_at timestamptz NOT NULL,
    dead_lettered_at       timestamptz NOT NULL,
    -- When it is to be delivered to its group again, and which entry of operator_audit asked for it.
    replay_at              timestamptz,
    replay_audit_id        bigint,
    CONSTRAINT bus_dead_letter_once UNIQUE (queue, message_id),
    CONSTRAINT bus_dead_letter_message_id CHECK (octet_length(message_id) BETWEEN 1 AND 255),
    CONSTRAINT bus_dead_letter_names
        CHECK (octet_length(exchange) BETWEEN 1 AND 255 AND octet_length(routing_key) <= 255),
    CONSTRAINT bus_dead_letter_cause
        CHECK (char_length(cause_code) BETWEEN 1 AND 255 AND char_length(cause_message) <= 500),
    CONSTRAINT bus_dead_letter_counts CHECK (attempts >= 0 AND replayed >= 0),
    CONSTRAINT bus_dead_letter_headers CHECK (jsonb_typeof(headers) = 'object'),
    CONSTRAINT bus_dead_letter_deaths CHECK (jsonb_typeof(deaths) = 'array'),
    CONSTRAINT bus_dead_letter_times CHECK (first_dead_lettered_at <= dead_lettered_at),
    CONSTRAINT bus_dead_letter_replay CHECK ((replay_at IS NULL) = (replay_audit_id IS NULL))
);
CREATE INDEX bus_dead_letter_age ON bus_dead_letter (dead_lettered_at, id);
CREATE INDEX bus_dead_letter_group ON bus_dead_letter (queue, cause_code, routing_key);
CREATE INDEX bus_dead_letter_tenant ON bus_dead_letter (tenant_id, dead_lettered_at)
    WHERE tenant_id IS NOT NULL;
CREATE INDEX bus_dead_letter_due ON bus_dead_letter (replay_at, id) WHERE replay_at IS NOT NULL;

-- What operators did. Written before the deed, completed after it; never a body.
CREATE TABLE operator_audit (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT now(),
    actor_kind  text        NOT NULL,
    -- The token's id, or the user's name on the machine.
    actor       text        NOT NULL,
    action      text        NOT NULL,
    parameters  jsonb       NOT NULL,
    dry_run     boolean     NOT NULL,
    matched     bigint,
    changed     bigint,
    outcome     text        NOT NULL DEFAULT 'started',
    error       text,
    finished_at timestamptz,
    CONSTRAINT operator_audit_actor
        CHECK (actor_kind IN ('token', 'user') AND char_length(actor) BETWEEN 1 AND 255),
    CONSTRAINT operator_audit_action CHECK (action ~ '^[a-z][a-z_.]{0,62}$'),
    CONSTRAINT operator_audit_parameters CHECK (jsonb_typeof(parameters) = 'object'),
    CONSTRAINT operator_audit_outcome CHECK (outcome IN ('started', 'done', 'failed')),
    CONSTRAINT operator_audit_finished
        CHECK ((outcome = 'started') = (finished_at IS NULL)
               AND (outcome <> 'done' OR (matched IS NOT NULL AND changed IS NOT NULL))
               AND (outcome = 'failed') = (error IS NOT NULL)),
    CONSTRAINT operator_audit_counts CHECK (matched >= 0 AND changed >= 0),
    CONSTRAINT operator_audit_dry CHECK (NOT dry_run OR coalesce(changed, 0) = 0)
);
CREATE INDEX operator_audit_at ON operator_audit (at, id);
