-- name: referred_tables
SELECT lower(refers."table")
FROM sqlite_schema AS made, pragma_foreign_key_list(made.name) AS refers
WHERE made.type = 'table'

-- name: last_number
SELECT max(seq) FROM sqlite_sequence WHERE name = 'events'
