-- Pages with much room, so that a lane is looked up by its key even where there are few: reading the whole table may mean
-- reading every old version that another session's snapshot keeps.
ALTER TABLE relay_lane SET (fillfactor = 10);
