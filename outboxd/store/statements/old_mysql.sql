-- How old rows are found and deleted, for MySQL 8.0.1+ and MariaDB 10.6+. They are found without locks, in index order, and
-- deleted by primary key: nothing that a producer's INSERT or a claim could wait for is locked but the rows that go.

-- name: equal
-- Index due: one due value behind an id. Not of ordered lanes, which have no such index. Ids ascend with time, so the oldest come first.
SELECT id, due_at_ms, created_at_ms, updated_at_ms, delivered_at_ms, status = 'delivering' AND lock_until_ms > {now}
FROM {table} FORCE INDEX (due) WHERE due_at_ms = :due AND id > :after ORDER BY id LIMIT :most

-- name: range
-- Index due: what has a time of its own, by that. Not of ordered lanes.
SELECT id, due_at_ms, created_at_ms, updated_at_ms, delivered_at_ms, status = 'delivering' AND lock_until_ms > {now}
FROM {table} FORCE INDEX (due) WHERE due_at_ms BETWEEN :low AND :high ORDER BY due_at_ms, id LIMIT :most

-- name: parted_equal
-- Index rooms alone: (due, id, partition) of at most :each rows of each partition.
[[SELECT due_at_ms, id, room_partition FROM {table} {due_index} WHERE {part}due_at_ms = :due AND id > :after
  ORDER BY id LIMIT :each]]

-- name: parted_range
-- Index rooms alone: the same of what has a time of its own.
[[SELECT due_at_ms, id, room_partition FROM {table} {due_index} WHERE {part}due_at_ms BETWEEN :low AND :high
  ORDER BY due_at_ms, id LIMIT :each]]

-- name: rows
-- Primary key. What has changed since it was found is of another kind by now.
SELECT id, due_at_ms, created_at_ms, updated_at_ms, delivered_at_ms, status = 'delivering' AND lock_until_ms > {now}
FROM {table} FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND due_at_ms BETWEEN :low AND :high

-- name: lock
-- Primary key. What somebody else works on is left to him.
SELECT id FROM {table} FORCE INDEX (PRIMARY) WHERE {rows} AND {still} ORDER BY id FOR UPDATE SKIP LOCKED

-- name: delete
-- Primary key. This form of DELETE takes the name of an index.
DELETE old FROM {table} AS old FORCE INDEX (PRIMARY) WHERE {rows} AND {still}
