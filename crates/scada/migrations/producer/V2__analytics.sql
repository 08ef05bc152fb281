-- What became of the readings of a node. docs/spec/scada-analytics.md says what each column means.

CREATE TABLE analytics_ledger (
    node_id    integer      NOT NULL,
    plant      varchar(64)  NOT NULL,
    area       varchar(64)  NOT NULL,
    unit_name  varchar(64)  NOT NULL,
    tag        varchar(128) NOT NULL,
    day        date         NOT NULL,
    readings   bigint       NOT NULL,
    kept       bigint       NOT NULL,
    reduced    bigint       NOT NULL,
    derived    bigint       NOT NULL,
    updated_at timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (node_id, plant, area, unit_name, tag, day),
    CONSTRAINT analytics_ledger_node CHECK (node_id BETWEEN 1 AND 1000),
    -- No check that each is at least 0: an upsert is checked before it is merged, and a cycle that sends a reading held since an
    -- earlier one takes one back from reduced.
    CONSTRAINT analytics_ledger_conserved CHECK (readings = kept + reduced)
) WITH (fillfactor = 50);

-- Which counts were written: a cycle that comes a second time from the spool must not count twice.
CREATE TABLE analytics_batch (
    id         uuid        PRIMARY KEY,
    counted_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX idx_analytics_batch_counted ON analytics_batch (counted_at);
