-- What operators do, for both dialects. {due_index} makes the server read the index on due_at_ms: the primary key has
-- the order of ids, too, but along it lies everything that was ever delivered. {ids} is a list of numbers. Rows are
-- changed by primary key, with their status checked again. {part}, {in_order}, [[ ]] and [then ] are for lanes whose index begins
-- with the partition (store/spread.py).

-- name: enqueue
INSERT INTO {table} (app_code, event_id, event_type, room_id, envelope, content_type, headers, next_retry_at_ms,
                     created_at_ms)
VALUES (:app, :event, :type, :room, :payload, :content, :head, CASE WHEN :delay > 0 THEN {now} + :delay ELSE 0 END,
        {now})

-- name: identify
-- The unique index.
SELECT id, status FROM {table} WHERE app_code = :app AND event_id = :event

-- name: now
SELECT {now}

-- name: lane
SELECT paused, paused_by FROM outboxd_lane WHERE lane = :lane

-- name: set_paused
-- Quoted, since a lane may name its own columns otherwise.
UPDATE outboxd_lane SET paused = :paused, paused_by = :who, `updated_at_ms` = {now} WHERE lane = :lane

-- name: count_class
-- {due_index}: one range, at most :most rows of it. The row tells whether it is being delivered.
SELECT state, COUNT(*) AS counted, MIN(since) AS oldest
FROM (SELECT status AS state,
             CASE WHEN created_at_ms = 0 THEN NULL
                  WHEN status = 'pending' AND next_retry_at_ms > created_at_ms THEN next_retry_at_ms
                  ELSE created_at_ms END AS since
      FROM {table} {due_index} WHERE {part}due_at_ms BETWEEN :low AND :high {in_order} LIMIT :most) AS seen
GROUP BY state

-- name: class_heads
-- {due_index}: the same of the first :each rows of a range.
SELECT state, COUNT(*) AS counted, MIN(since) AS oldest
FROM ([[SELECT status AS state,
               CASE WHEN created_at_ms = 0 THEN NULL
                    WHEN status = 'pending' AND next_retry_at_ms > created_at_ms THEN next_retry_at_ms
                    ELSE created_at_ms END AS since
        FROM {table} {due_index} WHERE {part}due_at_ms BETWEEN :low AND :high
        ORDER BY due_at_ms, id LIMIT :each]]) AS seen
GROUP BY state

-- name: count_fresh
-- {due_index} alone, at most :most entries of it.
SELECT COUNT(*) FROM (SELECT id FROM {table} {due_index} WHERE {part}due_at_ms = :fresh LIMIT :most) AS seen

-- name: count_failed
-- {due_index} alone, at most :most entries of it.
SELECT COUNT(*) FROM (SELECT id FROM {table} {due_index} WHERE {part}due_at_ms = -2 LIMIT :most) AS seen

-- name: blocked_rooms
-- {due_index}: :most dead letters. Those that were skipped, or are of no room, block nobody.
SELECT COUNT(*) FROM (SELECT DISTINCT a, r FROM (SELECT app_code AS a, room_id AS r, next_retry_at_ms AS n
                                                 FROM {table} {due_index} WHERE {part}due_at_ms = -2
                                                 {in_order} LIMIT :most) AS seen
                      WHERE n >= 0 AND LENGTH(r) > 0) AS rooms

-- name: next_due
-- {due_index}: the first entry of a range.
[[SELECT due_at_ms AS d FROM {table} {due_index} WHERE {part}due_at_ms BETWEEN :low AND :high
  ORDER BY due_at_ms LIMIT 1]] [then ORDER BY d LIMIT 1]

-- name: next_app
-- The unique index: from one app_code to the next, one entry each.
SELECT MIN(app_code) FROM {table} WHERE app_code > :after

-- name: first_app
SELECT MIN(app_code) FROM {table}

-- name: find
-- The unique index.
SELECT id, app_code, event_id, event_type, room_id, content_type, headers, status, worker_id, claim_token,
       lock_until_ms, retry_count, next_retry_at_ms, published_to, last_error, created_at_ms, updated_at_ms,
       delivered_at_ms, due_at_ms, {envelope_bytes}, {now}
FROM {table} WHERE app_code = :app AND event_id = :event

-- name: kill
-- A worker that publishes it meanwhile finds its token gone: its settle is lost.
UPDATE {table} {by_key}
SET status = 'failed', claim_token = 0, lock_until_ms = 0, next_retry_at_ms = 0, last_error = :why,
    updated_at_ms = {now}
WHERE id = :id AND status = :seen AND claim_token = :seen_token

-- name: failed_up
-- {due_index} alone: dead letters behind an id.
[[SELECT id AS i FROM {table} {due_index} WHERE {part}due_at_ms = -2 AND id > :position
  ORDER BY id LIMIT :most]] [then ORDER BY i LIMIT :most]

-- name: failed_down
-- {due_index} alone: dead letters before an id, newest first.
[[SELECT id AS i FROM {table} {due_index} WHERE {part}due_at_ms = -2 AND id < :position
  ORDER BY id DESC LIMIT :most]] [then ORDER BY i DESC LIMIT :most]

-- name: dead_rows
-- Primary key.
SELECT id, app_code, event_id, event_type, room_id, content_type, headers, status, worker_id, claim_token,
       lock_until_ms, retry_count, next_retry_at_ms, published_to, last_error, created_at_ms, updated_at_ms,
       delivered_at_ms, due_at_ms, {envelope_bytes}, {now}
FROM {table} WHERE id IN ({ids}) AND status = 'failed' AND {wanted} ORDER BY id DESC

-- name: dead_published_to
-- Primary key.
SELECT id, COALESCE(published_to, '') FROM {table}
WHERE id IN ({ids}) AND status = 'failed' AND {wanted} ORDER BY id

-- name: wanted
-- Not a statement: what a filter asks of a dead letter, for {wanted}. NULL: anything. last_error says what it died of.
-- Lengths, too: MySQL takes names for equal that differ in spaces at their ends.
(:event IS NULL OR event_id = :event AND LENGTH(event_id) = LENGTH(:event))
AND (:room IS NULL OR room_id = :room AND LENGTH(room_id) = LENGTH(:room))
AND (:app IS NULL OR app_code = :app AND LENGTH(app_code) = LENGTH(:app))
AND (:type IS NULL OR {type_matches}) AND (:since IS NULL OR updated_at_ms >= :since)
AND (:until IS NULL OR updated_at_ms < :until) AND (:error IS NULL OR last_error LIKE :error ESCAPE '!')
AND (:unskipped = 0 OR next_retry_at_ms >= 0)

-- name: replay
-- Primary key; published_to as it was read, so that nobody who accepted the event since is asked again.
UPDATE {table} {by_key}
SET status = 'pending', retry_count = 0, next_retry_at_ms = 0, lock_until_ms = 0, claim_token = 0,
    published_to = :names, updated_at_ms = {now}
WHERE id IN ({ids}) AND status = 'failed' AND COALESCE(published_to, '') = :seen

-- name: skip
-- Primary key. When it died stays as it is.
UPDATE {table} {by_key} SET next_retry_at_ms = :mark WHERE id IN ({ids}) AND status = 'failed' AND {wanted}

-- name: purge
-- Primary key.
DELETE FROM {table} WHERE id IN ({ids}) AND status = 'failed' AND {wanted}

-- name: by_id
-- Primary key.
SELECT id, app_code, event_id, event_type, room_id, content_type, headers, status, worker_id, claim_token,
       lock_until_ms, retry_count, next_retry_at_ms, published_to, last_error, created_at_ms, updated_at_ms,
       delivered_at_ms, due_at_ms, {envelope_bytes}, {now}
FROM {table} WHERE id = :id

-- name: partition_of
-- Primary key.
SELECT room_partition FROM {table} WHERE id = :id

-- name: partition_owner
-- Primary key. Quoted, since a lane may name its own columns otherwise.
SELECT `worker_id` FROM outboxd_partition WHERE lane = :lane AND number = :number AND `lock_until_ms` > {now}

-- name: room_equal
-- {rooms_index}: rows of one due value before an id, at most :most of them: how many, of that room how many, the first.
SELECT COUNT(*), SUM(ours), MIN(CASE WHEN ours = 1 THEN i END)
FROM (SELECT id AS i, CASE WHEN room_id = :room AND app_code = :app AND (:due <> -2 OR next_retry_at_ms >= 0)
                           THEN 1 ELSE 0 END AS ours
      FROM {table} {rooms_index} WHERE room_partition = :part AND due_at_ms = :due AND id < :id
      ORDER BY id LIMIT :most) AS seen

-- name: room_range
-- {rooms_index}: the same of rows due at some time; what a producer delays holds nobody back.
SELECT COUNT(*), SUM(ours), MIN(CASE WHEN ours = 1 THEN i END)
FROM (SELECT id AS i, CASE WHEN id < :id AND room_id = :room AND app_code = :app
                                AND (status <> 'pending' OR due_at_ms <= {now}) THEN 1 ELSE 0 END AS ours
      FROM {table} {rooms_index} WHERE room_partition = :part AND due_at_ms BETWEEN 0 AND :high
      ORDER BY due_at_ms, id LIMIT :most) AS seen

-- name: ahead_equal
-- {due_index}: rows of one due value before an id, at most :most of them, that a claim would take first.
SELECT COUNT(*) FROM (SELECT id FROM {table} {due_index}
                      WHERE {part}due_at_ms = :due AND id < :id AND lock_until_ms <= {now} LIMIT :most) AS seen

-- name: ahead_range
-- {due_index}: rows due earlier, at most :most of them, that a claim would take first.
SELECT COUNT(*) FROM (SELECT id FROM {table} {due_index}
                      WHERE {part}due_at_ms BETWEEN 0 AND :due - 1 AND lock_until_ms <= {now} LIMIT :most) AS seen

-- name: holders
-- {due_index}: the first :each rows of a range, where those that are claimed stand.
SELECT holder, COUNT(*) FROM ([[SELECT worker_id AS holder, status AS state, lock_until_ms AS until_ms
                                FROM {table} {due_index} WHERE {part}due_at_ms BETWEEN :low AND :high
                                ORDER BY due_at_ms, id LIMIT :each]]) AS seen
WHERE state = 'delivering' AND until_ms > {now} GROUP BY holder

-- name: newest_failure
-- {due_index}, from the end of those that are due at some time: at most :each of them.
SELECT since, why FROM ([[SELECT status AS state, updated_at_ms AS since, last_error AS why
                          FROM {table} {due_index} WHERE {part}due_at_ms BETWEEN 0 AND :high
                          ORDER BY due_at_ms DESC, id DESC LIMIT :each]]) AS seen
WHERE state = 'retryable' AND why IS NOT NULL ORDER BY since DESC LIMIT 1

-- name: newest_delivered
-- {due_index}, from its end.
[[SELECT delivered_at_ms, id AS i FROM {table} {due_index} WHERE {part}due_at_ms = -1
  ORDER BY id DESC LIMIT 1]] [then ORDER BY i DESC LIMIT 1]

-- name: envelope
-- Primary key.
SELECT envelope FROM {table} WHERE id = :id
