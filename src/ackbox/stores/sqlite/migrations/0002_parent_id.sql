-- The id of the event or delivery that this event came from. A new column comes after `payload`: only
-- reading a `parent_id` that is set passes through the pages of a large payload.
ALTER TABLE events ADD COLUMN parent_id TEXT;
