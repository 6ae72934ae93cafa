-- What an ordered lane needs beside the usual statements, for SQLite 3.35+. {rooms} is the index. Only the owner of a
-- partition claims its rows, so candidates are read without locks; the claim itself is fenced by the owner's token.

-- name: size
-- Not a statement: how many bytes an envelope has; a blob's size is read without its content.
(CASE typeof(envelope) WHEN 'blob' THEN length(envelope) ELSE length(CAST(envelope AS BLOB)) END)

-- name: full
-- Not a statement: the columns of a candidate (choose.py), then its partition and for how long it is leased and not due.
id, CAST(event_id AS TEXT), CAST(event_type AS TEXT), CAST(room_id AS TEXT), CAST(app_code AS TEXT),
CASE WHEN {size} <= :inline THEN CAST(envelope AS BLOB) END, CAST(content_type AS TEXT), CAST(headers AS TEXT),
retry_count, created_at_ms, COALESCE(published_to, ''), last_error, status, due_at_ms, {size},
room_partition, lock_until_ms - {now}, due_at_ms - {now}

-- name: light
-- Not a statement: the same without what only a publisher needs.
id, '', '', CAST(room_id AS TEXT), CAST(app_code AS TEXT), NULL, '', NULL, 0, 0, '', NULL, status, due_at_ms, {size},
room_partition, lock_until_ms - {now}, due_at_ms - {now}

-- name: peek
-- {rooms}: a range for each partition. No locks.
SELECT {now},
       (SELECT paused FROM outboxd_lane WHERE lane = :lane),
       EXISTS (SELECT 1 FROM {table} INDEXED BY {rooms}
               WHERE room_partition IN ({numbers}) AND due_at_ms = :fresh AND id > :after AND lock_until_ms <= {now}),
       EXISTS (SELECT 1 FROM {table} INDEXED BY {rooms}
               WHERE room_partition IN ({numbers}) AND due_at_ms = :due AND id > :due_after AND lock_until_ms <= {now})
    OR EXISTS (SELECT 1 FROM {table} INDEXED BY {rooms}
               WHERE room_partition IN ({numbers}) AND due_at_ms > :due AND due_at_ms <= {now}
                 AND lock_until_ms <= {now})

-- name: scan_equal
-- {rooms}: one due value of one partition, behind an id. Joined by UNION ALL, all of one snapshot.
SELECT * FROM (SELECT {row} FROM {table} INDEXED BY {rooms}
 WHERE room_partition = {number} AND due_at_ms = {due} AND id > {after} ORDER BY id LIMIT {limit})

-- name: scan_range
-- {rooms}: due values of one partition up to now.
SELECT * FROM (SELECT {row} FROM {table} INDEXED BY {rooms}
 WHERE room_partition = {number} AND due_at_ms BETWEEN {due} AND {now} ORDER BY due_at_ms, id LIMIT {limit})

-- name: last_id
-- Primary key, its end.
SELECT COALESCE(MAX(id), 0) FROM {table}

-- name: open_ids
-- {rooms}: a range of ids for each partition. Joined by UNION ALL.
SELECT id FROM {table} INDEXED BY {rooms}
WHERE room_partition IN ({numbers}) AND due_at_ms = :fresh AND id > :after AND id < {before}

-- name: scan_new
-- {rooms}: what came to any of several partitions. One range each costs a tenth of a SELECT each.
SELECT {row} FROM {table} INDEXED BY {rooms}
WHERE room_partition IN ({numbers}) AND due_at_ms = :fresh AND id > :after AND id <= :upto LIMIT :limit

-- name: window
-- {rooms} alone: the id of the :each-th fresh row of one partition. Joined by UNION ALL.
SELECT * FROM (SELECT id AS i FROM {table} INDEXED BY {rooms}
 WHERE room_partition = {number} AND due_at_ms = :fresh AND id > :after ORDER BY id LIMIT 1 OFFSET :more)

-- name: scan_room
-- {rooms}: one room's fresh rows from an id on, among those of its partition.
SELECT {row} FROM {table} INDEXED BY {rooms}
WHERE room_partition = :number AND due_at_ms = :fresh AND id >= :from AND app_code = :app AND room_id = :room
ORDER BY id LIMIT :limit

-- name: blockers
-- {rooms}: what was tried and waits, in whole partitions.
SELECT {row} FROM {table} INDEXED BY {rooms}
WHERE room_partition IN ({numbers}) AND due_at_ms BETWEEN 1 AND :fresh - 1 AND status <> 'pending'

-- name: dead_blockers
-- {rooms}: dead letters that nobody has skipped.
SELECT {row} FROM {table} INDEXED BY {rooms}
WHERE room_partition IN ({numbers}) AND due_at_ms = -2 AND next_retry_at_ms >= 0

-- name: rows
SELECT {row}, next_retry_at_ms FROM {table} WHERE id IN ({ids})

-- name: take
UPDATE {table}
SET status = 'delivering', worker_id = :worker, claim_token = :token, lock_until_ms = {now} + :lease
WHERE id IN ({ids}) AND lock_until_ms <= {now} AND status IN ('pending', 'retryable')

-- name: take_suspect
UPDATE {table}
SET status = 'delivering', worker_id = :worker, claim_token = :token, lock_until_ms = {now} + :lease,
    retry_count = retry_count + 1
WHERE id IN ({ids}) AND lock_until_ms <= {now} AND status = 'delivering'

-- name: taken
SELECT id FROM {table} WHERE id IN ({ids}) AND claim_token = :token AND status = 'delivering'

-- name: give_back
UPDATE {table}
SET status = CASE WHEN retry_count > 0 OR last_error IS NOT NULL THEN 'retryable' ELSE 'pending' END, lock_until_ms = 0
WHERE id IN ({ids}) AND claim_token = :token AND status = 'delivering'
