-- The id of the event or delivery that this event came from. Adding an empty column rewrites no row.
ALTER TABLE {schema}.events ADD COLUMN parent_id uuid;
