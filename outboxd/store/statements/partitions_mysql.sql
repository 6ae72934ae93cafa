-- What an ordered lane needs beside the usual statements, for MySQL 8.0.1+ and MariaDB 10.6+. Only the owner of a
-- partition claims its rows, so candidates are read without locks; the claim itself is fenced by the owner's token.

-- name: full
-- Not a statement: the columns of a candidate (choose.py), then its partition and for how long it is leased and not due.
id, event_id, event_type, room_id, app_code, IF(LENGTH(envelope) <= :inline, envelope, NULL), content_type, headers,
retry_count, created_at_ms, COALESCE(published_to, ''), last_error, status, due_at_ms, LENGTH(envelope),
room_partition, IF(lock_until_ms = 0, -1, lock_until_ms - {now}), IF(next_retry_at_ms <= 0, 0, due_at_ms - {now})

-- name: light
-- Not a statement: the same without what only a publisher needs.
id, '', '', room_id, app_code, NULL, '', NULL, 0, 0, '', NULL, status, due_at_ms, LENGTH(envelope),
room_partition, IF(lock_until_ms = 0, -1, lock_until_ms - {now}), IF(next_retry_at_ms <= 0, 0, due_at_ms - {now})

-- name: peek
-- Index rooms: a range for each partition; LIMIT 1. No locks.
SELECT {now},
       (SELECT paused FROM outboxd_lane WHERE lane = :lane),
       EXISTS (SELECT 1 FROM {table} FORCE INDEX (rooms)
               WHERE room_partition IN ({numbers}) AND due_at_ms = :fresh AND id > :after AND lock_until_ms <= {now}
               LIMIT 1),
       EXISTS (SELECT 1 FROM {table} FORCE INDEX (rooms)
               WHERE room_partition IN ({numbers}) AND due_at_ms = :due AND id > :due_after AND lock_until_ms <= {now}
               LIMIT 1)
    OR EXISTS (SELECT 1 FROM {table} FORCE INDEX (rooms)
               WHERE room_partition IN ({numbers}) AND due_at_ms > :due AND due_at_ms <= {now}
                 AND lock_until_ms <= {now} LIMIT 1)

-- name: scan_equal
-- Index rooms: one due value of one partition, behind an id. Joined by UNION ALL, all of one snapshot.
(SELECT {row} FROM {table} FORCE INDEX (rooms)
 WHERE room_partition = {number} AND due_at_ms = {due} AND id > {after} ORDER BY id LIMIT {limit})

-- name: scan_range
-- Index rooms: due values of one partition up to now.
(SELECT {row} FROM {table} FORCE INDEX (rooms)
 WHERE room_partition = {number} AND due_at_ms BETWEEN {due} AND {now} ORDER BY due_at_ms, id LIMIT {limit})

-- name: last_id
-- Primary key, its end.
SELECT COALESCE(MAX(id), 0) FROM {table}

-- name: open_ids
-- Index rooms alone: the rows are not read. Joined by UNION ALL.
SELECT id FROM {table} FORCE INDEX (rooms)
WHERE room_partition IN ({numbers}) AND due_at_ms = :fresh AND id > :after AND id < {before}

-- name: scan_new
-- Index rooms: what came to any of several partitions. One range each costs a tenth of a SELECT each.
SELECT {row} FROM {table} FORCE INDEX (rooms)
WHERE room_partition IN ({numbers}) AND due_at_ms = :fresh AND id > :after AND id <= :upto LIMIT :limit

-- name: window
-- Index rooms alone: the id of the :each-th fresh row of one partition. Joined by UNION ALL.
(SELECT id AS i FROM {table} FORCE INDEX (rooms)
 WHERE room_partition = {number} AND due_at_ms = :fresh AND id > :after ORDER BY id LIMIT 1 OFFSET :more)

-- name: scan_room
-- Index rooms: one room's fresh rows from an id on, among those of its partition.
SELECT {row} FROM {table} FORCE INDEX (rooms)
WHERE room_partition = :number AND due_at_ms = :fresh AND id >= :from AND app_code = :app AND room_id = :room
ORDER BY id LIMIT :limit

-- name: blockers
-- Index rooms: what was tried and waits, in whole partitions.
SELECT {row} FROM {table} FORCE INDEX (rooms)
WHERE room_partition IN ({numbers}) AND due_at_ms BETWEEN 1 AND :fresh - 1 AND status <> 'pending'

-- name: dead_blockers
-- Index rooms: dead letters that nobody has skipped.
SELECT {row} FROM {table} FORCE INDEX (rooms)
WHERE room_partition IN ({numbers}) AND due_at_ms = -2 AND next_retry_at_ms >= 0

-- name: rows
SELECT {row}, next_retry_at_ms FROM {table} FORCE INDEX (PRIMARY) WHERE id IN ({ids})

-- name: take
UPDATE {table} FORCE INDEX (PRIMARY)
SET status = 'delivering', worker_id = :worker, claim_token = :token, lock_until_ms = {now} + :lease
WHERE id IN ({ids}) AND lock_until_ms <= {now} AND status IN ('pending', 'retryable')

-- name: take_suspect
UPDATE {table} FORCE INDEX (PRIMARY)
SET status = 'delivering', worker_id = :worker, claim_token = :token, lock_until_ms = {now} + :lease,
    retry_count = retry_count + 1
WHERE id IN ({ids}) AND lock_until_ms <= {now} AND status = 'delivering'

-- name: taken
SELECT id FROM {table} FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND claim_token = :token AND status = 'delivering'

-- name: give_back
UPDATE {table} FORCE INDEX (PRIMARY)
SET status = CASE WHEN retry_count > 0 OR last_error IS NOT NULL THEN 'retryable' ELSE 'pending' END, lock_until_ms = 0
WHERE id IN ({ids}) AND claim_token = :token AND status = 'delivering'
