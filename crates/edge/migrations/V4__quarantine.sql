-- What came in and could not be stored as data, with its reason. A person looks at it.

CREATE TABLE ingress_quarantine (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key         bytea       NOT NULL,
    received_at timestamptz NOT NULL,
    last_at     timestamptz NOT NULL,
    times       bigint      NOT NULL DEFAULT 1,
    source      text        NOT NULL,
    topic       text        NOT NULL,
    node_id     text,
    tenant_id   uuid,
    epoch       uuid,
    seq         bigint,
    event_id    uuid,
    accounted   boolean     NOT NULL,
    reason      text        NOT NULL,
    detail      text        NOT NULL,
    body        bytea       NOT NULL,
    body_bytes  bigint      NOT NULL,
    CONSTRAINT ingress_quarantine_key UNIQUE (key),
    CONSTRAINT ingress_quarantine_source CHECK (source IN ('mqtt', 'http')),
    CONSTRAINT ingress_quarantine_times CHECK (times >= 1),
    CONSTRAINT ingress_quarantine_body CHECK (octet_length(body) <= body_bytes)
);
CREATE INDEX ingress_quarantine_node ON ingress_quarantine (node_id, received_at DESC);
CREATE INDEX ingress_quarantine_seq ON ingress_quarantine (node_id, epoch, seq) WHERE seq IS NOT NULL;
-- How many refused messages a node has here already.
CREATE INDEX ingress_quarantine_messages ON ingress_quarantine ((coalesce(node_id, '')))
    WHERE NOT accounted;
