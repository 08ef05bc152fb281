-- Cycles that a node's spool had to give up, each range once. docs/spec/scada.md says when.
CREATE TABLE spool_gaps (
    epoch       uuid        NOT NULL,
    from_seq    bigint      NOT NULL,
    to_seq      bigint      NOT NULL,
    cycles      bigint      NOT NULL,
    reason      varchar(32) NOT NULL,
    first_at    timestamptz,
    last_at     timestamptz,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (epoch, from_seq),
    CONSTRAINT spool_gaps_range CHECK (from_seq <= to_seq AND cycles > 0)
);
