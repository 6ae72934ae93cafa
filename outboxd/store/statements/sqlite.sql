-- The relay's own statements for SQLite 3.35+. {index} is the table's index on due_at_ms: named, since the planner prefers
-- the primary key once ANALYZE has run. Its entries end in the id, so `id > :after` is part of the range. Lists come as
-- JSON text. Rows are changed by primary key.

-- name: row
-- Not a statement: the columns of a candidate, for {row}. The size of a blob is read without its content. Producers may
-- have written text as blobs and blobs as text.
id, CAST(event_id AS TEXT), CAST(event_type AS TEXT), CAST(room_id AS TEXT), CAST(app_code AS TEXT),
CASE WHEN (CASE typeof(envelope) WHEN 'blob' THEN length(envelope) ELSE length(CAST(envelope AS BLOB)) END) <= :inline
     THEN CAST(envelope AS BLOB) END,
CAST(content_type AS TEXT), CAST(headers AS TEXT), retry_count, created_at_ms, COALESCE(published_to, ''), last_error,
status, due_at_ms,
CASE typeof(envelope) WHEN 'blob' THEN length(envelope) ELSE length(CAST(envelope AS BLOB)) END

-- name: peek
-- Three ranges of {index}; the last id from the end of the table. No locks.
SELECT {now},
       (SELECT paused FROM outboxd_lane WHERE lane = :lane),
       EXISTS (SELECT 1 FROM {table} INDEXED BY {index}
               WHERE due_at_ms = :fresh AND id > :after AND lock_until_ms <= {now}),
       EXISTS (SELECT 1 FROM {table} INDEXED BY {index}
               WHERE due_at_ms = :due AND id > :due_after AND lock_until_ms <= {now})
    OR EXISTS (SELECT 1 FROM {table} INDEXED BY {index}
               WHERE due_at_ms > :due AND due_at_ms <= {now} AND lock_until_ms <= {now}),
       (SELECT MAX(id) FROM {table})

-- name: claim_equal
-- {index}: one due value, behind an id.
SELECT {row} FROM {table} INDEXED BY {index}
WHERE due_at_ms = :due AND id > :after AND lock_until_ms <= {now}
ORDER BY id LIMIT :limit

-- name: claim_range
-- {index}: a range of due values.
SELECT {row} FROM {table} INDEXED BY {index}
WHERE due_at_ms BETWEEN :due AND {now} AND lock_until_ms <= {now}
ORDER BY due_at_ms, id LIMIT :limit

-- name: take
UPDATE {table}
SET status = 'delivering', worker_id = :worker, claim_token = :token, lock_until_ms = {now} + :lease,
    retry_count = retry_count + :lost
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: settle
-- One row; no round trip is saved by settling several at once. The right sides see the row as it was.
UPDATE {table}
SET retry_count = retry_count + :counted,
    next_retry_at_ms = CASE :status WHEN 'retryable' THEN {now} + :delay WHEN 'failed' THEN 0 ELSE next_retry_at_ms END,
    lock_until_ms = CASE WHEN :status IN ('retryable', 'released') THEN 0 ELSE lock_until_ms END,
    last_error = CASE :status WHEN 'released' THEN last_error ELSE :error END,
    published_to = COALESCE(:names, published_to),
    delivered_at_ms = CASE :status WHEN 'delivered' THEN {now} ELSE delivered_at_ms END,
    updated_at_ms = {now},
    status = CASE WHEN :status <> 'released' THEN :status
                  WHEN retry_count > 0 OR last_error IS NOT NULL THEN 'retryable'
                  ELSE 'pending' END
WHERE id = :key AND claim_token = :token AND status = 'delivering'

-- name: settle_discarded
-- Rows of one claim that go.
DELETE FROM {table}
WHERE id IN (SELECT value FROM json_each(:ids)) AND claim_token = :token AND status = 'delivering'

-- name: tokens
SELECT id, claim_token, status FROM {table} WHERE id IN (SELECT value FROM json_each(:ids))

-- name: payload
SELECT CAST(envelope AS BLOB) FROM {table} WHERE id = :key

-- name: fetch
SELECT {row} FROM {table} WHERE id = :key AND claim_token = :token AND status = 'delivering'

-- name: renew
UPDATE {table} SET lock_until_ms = {now} + :lease
WHERE id IN (SELECT value FROM json_each(:ids)) AND claim_token = :token AND status = 'delivering'

-- name: hurry
UPDATE {table} SET next_retry_at_ms = {now}
WHERE id = :key AND claim_token = :token AND status = 'retryable' AND next_retry_at_ms > {now}

-- name: unfinished
SELECT EXISTS (SELECT 1 FROM {table} INDEXED BY {index} WHERE due_at_ms = :fresh)
    OR EXISTS (SELECT 1 FROM {table} INDEXED BY {index} WHERE due_at_ms BETWEEN 0 AND {now})
    OR EXISTS (SELECT 1 FROM {table} INDEXED BY {index}
               WHERE due_at_ms > {now} AND due_at_ms < :fresh AND status <> 'pending')
