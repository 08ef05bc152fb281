-- The events that told of an image, by the image: retention asks for each image whose time is over, verify for those it compares.
-- Nothing of it changes while a row is delivered, so it costs a claim nothing.
CREATE INDEX sync_outbox_media ON sync_outbox (lower(payload_json->>'media_id')) WHERE event_type = 'media.stored';
