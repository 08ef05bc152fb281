-- Telemetry by the minute, so that a long time is read fast. docs/spec/historian.md says when an hour counts as rolled up,
-- docs/adr/0017-minutes-beside-samples.md why it is so.

CREATE TABLE telemetry_minutes (
    minute    timestamptz      NOT NULL,
    min       double precision NOT NULL,
    max       double precision NOT NULL,
    sum       double precision NOT NULL,
    count     integer          NOT NULL,
    plant     varchar(64)      NOT NULL,
    area      varchar(64)      NOT NULL,
    unit_name varchar(64)      NOT NULL,
    tag       varchar(128)     NOT NULL,
    PRIMARY KEY (tag, plant, area, unit_name, minute),
    CONSTRAINT telemetry_minutes_values CHECK (count > 0 AND min <= max)
) PARTITION BY RANGE (minute);
-- For making an hour anew. It is of no use to those who read a series, who must never be led past their key.
CREATE INDEX telemetry_minutes_hour ON telemetry_minutes (date_bin('1 hour', minute, '2000-01-01 00:00:00+00'));
CREATE TABLE telemetry_minutes_default PARTITION OF telemetry_minutes DEFAULT;

-- Hours whose minutes were made. One that is in telemetry_changes as well does not count.
CREATE TABLE telemetry_hours (
    hour      timestamptz PRIMARY KEY,
    rolled_at timestamptz NOT NULL,
    CONSTRAINT telemetry_hours_whole CHECK (hour = date_bin('1 hour', hour, '2000-01-01 00:00:00+00'))
);

-- Hours that got rows since. Only appended to by those who store, so that none of them waits for another.
CREATE TABLE telemetry_changes (
    hour timestamptz NOT NULL
);
CREATE INDEX telemetry_changes_hour ON telemetry_changes (hour);

-- While it has its row, hours before that time are looked for in telemetry.
CREATE TABLE telemetry_search (
    before timestamptz NOT NULL,
    one    boolean     PRIMARY KEY DEFAULT true,
    CONSTRAINT telemetry_search_one CHECK (one)
);

-- Whoever stores and does not say which hours (a replica of an older version, a person) makes every hour count as changed.
CREATE FUNCTION telemetry_changed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO telemetry_changes (hour) VALUES ('-infinity');
    RETURN NULL;
END
$$;
CREATE TRIGGER telemetry_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON telemetry FOR EACH STATEMENT
    WHEN (current_setting('holdfast.hours', true) IS DISTINCT FROM 'noted')
    EXECUTE FUNCTION telemetry_changed();

-- What is there already was stored so.
INSERT INTO telemetry_changes (hour) VALUES ('-infinity');
