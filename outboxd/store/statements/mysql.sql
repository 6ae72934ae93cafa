-- The relay's own statements for MySQL 8.0.1+ and MariaDB 10.6+. READ COMMITTED; rows are locked by SELECT ... SKIP
-- LOCKED and then changed by primary key, never by a secondary index's condition: claims would lock index -> row, settles
-- row -> index, and deadlock. {rows} stands for a condition on the ids that are meant, in ranges (mysql.py).

-- name: peek
-- Index due, three ranges; LIMIT 1 each. The last id is read from the end of the primary key. No locks.
SELECT {now},
       (SELECT paused FROM outboxd_lane WHERE lane = :lane),
       EXISTS (SELECT 1 FROM {table} FORCE INDEX (due)
               WHERE due_at_ms = :fresh AND id > :after AND lock_until_ms <= {now}
               LIMIT 1),
       EXISTS (SELECT 1 FROM {table} FORCE INDEX (due)
               WHERE due_at_ms = :due AND id > :due_after AND lock_until_ms <= {now} LIMIT 1)
    OR EXISTS (SELECT 1 FROM {table} FORCE INDEX (due)
               WHERE due_at_ms > :due AND due_at_ms <= {now} AND lock_until_ms <= {now} LIMIT 1),
       (SELECT MAX(id) FROM {table})

-- name: claim_equal
-- Index due: one due value, behind an id. Payloads up to `inline` bytes come at once, so that rows of usual size need no
-- second statement and `limit` of them never exceed the byte budget.
SELECT id, event_id, event_type, room_id, app_code, IF(LENGTH(envelope) <= :inline, envelope, NULL), content_type,
       headers, retry_count, created_at_ms, COALESCE(published_to, ''), last_error, status, due_at_ms, LENGTH(envelope)
FROM {table} FORCE INDEX (due)
WHERE due_at_ms = :due AND id > :after AND lock_until_ms <= {now}
ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED

-- name: claim_range
-- Index due: a range of due values.
SELECT id, event_id, event_type, room_id, app_code, IF(LENGTH(envelope) <= :inline, envelope, NULL), content_type,
       headers, retry_count, created_at_ms, COALESCE(published_to, ''), last_error, status, due_at_ms, LENGTH(envelope)
FROM {table} FORCE INDEX (due)
WHERE due_at_ms BETWEEN :due AND {now} AND lock_until_ms <= {now}
ORDER BY due_at_ms, id LIMIT :limit FOR UPDATE SKIP LOCKED

-- name: take
UPDATE {table} FORCE INDEX (PRIMARY)
SET status = 'delivering', worker_id = :worker, claim_token = :token, lock_until_ms = {now} + :lease
WHERE {rows}

-- name: take_suspect
UPDATE {table} FORCE INDEX (PRIMARY)
SET status = 'delivering', worker_id = :worker, claim_token = :token, lock_until_ms = {now} + :lease,
    retry_count = retry_count + 1
WHERE {rows}

-- name: settle_delivered
-- The usual end, for rows of one claim. Everything it writes has a fixed width and is never null, so that no row outgrows
-- its page.
UPDATE {table} FORCE INDEX (PRIMARY)
SET status = 'delivered', last_error = NULL, updated_at_ms = {now}, delivered_at_ms = {now}
WHERE {rows} AND claim_token = :token AND status = 'delivering'

-- name: settle_discarded
-- Rows of one claim that go. This form of DELETE takes the name of an index.
DELETE t FROM {table} AS t FORCE INDEX (PRIMARY)
WHERE {rows} AND claim_token = :token AND status = 'delivering'

-- name: settle_each
-- Outcomes that differ from row to row, as a table of their own; read first (STRAIGHT_JOIN), rows found by primary key.
-- Its columns are named so that no renaming of ours (`columns`) can touch them.
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (
         o_id BIGINT PATH '$[0]', o_token BIGINT PATH '$[1]', o_status VARCHAR(16) PATH '$[2]',
         o_counted INT PATH '$[3]', o_delay BIGINT PATH '$[4]',
         o_error VARCHAR(512) CHARACTER SET utf8mb4 PATH '$[5]',
         o_names VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[6]')) AS o
       STRAIGHT_JOIN {table} AS t FORCE INDEX (PRIMARY) ON t.id = o_id
SET t.retry_count = t.retry_count + o_counted,
    t.next_retry_at_ms = CASE o_status WHEN 'retryable' THEN {now} + o_delay WHEN 'failed' THEN 0
                         ELSE t.next_retry_at_ms END,
    t.lock_until_ms = IF(o_status IN ('retryable', 'released'), 0, t.lock_until_ms),
    t.last_error = IF(o_status = 'released', t.last_error, o_error),
    t.published_to = COALESCE(o_names, t.published_to),
    t.delivered_at_ms = IF(o_status = 'delivered', {now}, t.delivered_at_ms),
    t.updated_at_ms = {now},
    t.status = CASE WHEN o_status <> 'released' THEN o_status
                    WHEN t.retry_count > 0 OR t.last_error IS NOT NULL THEN 'retryable' ELSE 'pending' END
WHERE t.claim_token = o_token AND t.status = 'delivering'

-- name: tokens
SELECT id, claim_token, status FROM {table} FORCE INDEX (PRIMARY) WHERE {rows}

-- name: payload
SELECT envelope FROM {table} FORCE INDEX (PRIMARY) WHERE id IN ({ids})

-- name: fetch
SELECT id, event_id, event_type, room_id, app_code, envelope, content_type, headers, retry_count, created_at_ms,
       COALESCE(published_to, ''), last_error
FROM {table} FORCE INDEX (PRIMARY)
WHERE id IN ({ids}) AND claim_token = :token AND status = 'delivering'

-- name: renew
UPDATE {table} FORCE INDEX (PRIMARY) SET lock_until_ms = {now} + :lease
WHERE {rows} AND claim_token = :token AND status = 'delivering'

-- name: hurry
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (o_id BIGINT PATH '$[0]', o_token BIGINT PATH '$[1]')) AS o
       STRAIGHT_JOIN {table} AS t FORCE INDEX (PRIMARY) ON t.id = o_id
SET t.next_retry_at_ms = {now}
WHERE t.claim_token = o_token AND t.status = 'retryable' AND t.next_retry_at_ms > {now}

-- name: unfinished
-- Of any lane, so {due_index} may be one that begins with the partition (store/spread.py).
SELECT EXISTS (SELECT 1 FROM {table} {due_index} WHERE {part}due_at_ms = :fresh LIMIT 1)
    OR EXISTS (SELECT 1 FROM {table} {due_index} WHERE {part}due_at_ms BETWEEN 0 AND {now} LIMIT 1)
    OR EXISTS (SELECT 1 FROM {table} {due_index}
               WHERE {part}due_at_ms > {now} AND due_at_ms < :fresh AND status <> 'pending' LIMIT 1)
