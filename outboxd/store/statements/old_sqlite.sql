-- How old rows are found and deleted, for SQLite 3.35+. {index} is the table's index on due_at_ms.

-- name: equal
-- {index}: one due value behind an id. Ids ascend with time, so the oldest come first.
SELECT id, due_at_ms, created_at_ms, updated_at_ms, delivered_at_ms, status = 'delivering' AND lock_until_ms > {now}
FROM {table} INDEXED BY {index} WHERE due_at_ms = :due AND id > :after ORDER BY id LIMIT :most

-- name: range
-- {index}: what has a time of its own, by that.
SELECT id, due_at_ms, created_at_ms, updated_at_ms, delivered_at_ms, status = 'delivering' AND lock_until_ms > {now}
FROM {table} INDEXED BY {index} WHERE due_at_ms BETWEEN :low AND :high ORDER BY due_at_ms, id LIMIT :most

-- name: delete
-- Primary key.
DELETE FROM {table} WHERE {rows} AND {still}
