-- Who may send, for which tenant, and when each was last heard.

CREATE TABLE nodes (
    node_id          text        PRIMARY KEY,
    tenant_id        uuid        NOT NULL,
    farm_id          uuid,
    barn_id          uuid,
    device_id        uuid        NOT NULL,
    label            text        NOT NULL DEFAULT '',
    secret_hash      bytea       NOT NULL,
    broker_hash      text        NOT NULL,
    enrolled_at      timestamptz NOT NULL DEFAULT now(),
    rotated_at       timestamptz,
    disabled_at      timestamptz,
    flagged_at       timestamptz,
    flag_reason      text,
    last_rx_at       timestamptz,
    last_sample_ts   timestamptz,
    status           jsonb,
    status_at        timestamptz,
    stored_count     bigint      NOT NULL DEFAULT 0,
    recovered_count  bigint      NOT NULL DEFAULT 0,
    cloned_count     bigint      NOT NULL DEFAULT 0,
    CONSTRAINT nodes_grammar
        CHECK (node_id ~ '^[a-z0-9][a-z0-9-]{0,62}$' AND node_id <> 'holdfast-edge'),
    CONSTRAINT nodes_secret CHECK (octet_length(secret_hash) = 32),
    CONSTRAINT nodes_flag CHECK ((flagged_at IS NULL) = (flag_reason IS NULL))
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX nodes_secret_hash ON nodes (secret_hash);
CREATE INDEX nodes_tenant ON nodes (tenant_id);

CREATE TABLE devices (
    tenant_id      uuid        NOT NULL,
    device_id      uuid        NOT NULL,
    node_id        text        NOT NULL,
    last_rx_at     timestamptz NOT NULL,
    last_sample_ts timestamptz,
    PRIMARY KEY (tenant_id, device_id)
) WITH (fillfactor = 50);
CREATE INDEX devices_node ON devices (node_id);
