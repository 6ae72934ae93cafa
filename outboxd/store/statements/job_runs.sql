-- Statements of the role that runs jobs, for both dialects. The few rows that are requested or running are found along
-- the index open (status, id); what is changed is changed by primary key. Only the insert has a form for each dialect.

-- name: running_jobs
SELECT id, name, cron_expression, url, params, execute_policy, is_sync, status, remark, created_at_ms, updated_at_ms,
       deleted_at_ms
FROM outboxd_job WHERE status = 1 AND deleted_at_ms = 0 ORDER BY id LIMIT :most

-- name: job
-- Primary key.
SELECT id, name, cron_expression, url, params, execute_policy, is_sync, status, remark, created_at_ms, updated_at_ms,
       deleted_at_ms
FROM outboxd_job WHERE id = :id AND deleted_at_ms = 0

-- name: add_mysql
-- Unique (job_id, tick_ms): whose insert comes first has the tick, and the others' match no row.
INSERT IGNORE INTO outboxd_job_log (job_id, name, tick_ms, fire_at_ms, status, triggered_by, node_id, started_at_ms,
                                    duration_ms, alive_until_ms, message, exception)
VALUES (:job, :name, :tick, :fire, :status, :who, :node, :began * ({now} - :age), :duration, :alive * ({now} + :for),
        :message, :exception)

-- name: add_sqlite
-- The same.
INSERT INTO outboxd_job_log (job_id, name, tick_ms, fire_at_ms, status, triggered_by, node_id, started_at_ms,
                             duration_ms, alive_until_ms, message, exception)
VALUES (:job, :name, :tick, :fire, :status, :who, :node, :began * ({now} - :age), :duration, :alive * ({now} + :for),
        :message, :exception)
ON CONFLICT (job_id, tick_ms) DO NOTHING

-- name: last_id_mysql
SELECT LAST_INSERT_ID()

-- name: last_id_sqlite
SELECT last_insert_rowid()

-- name: finish
-- Primary key. Also one that was given up as interrupted, while its node was cut off from the database.
UPDATE outboxd_job_log
SET status = :status, duration_ms = :duration, message = :message, exception = :exception,
    started_at_ms = :began * started_at_ms
WHERE id = :id AND status IN ('running', 'interrupted')

-- name: keep_alive
-- Primary key. The same.
UPDATE outboxd_job_log SET status = 'running', message = '', alive_until_ms = {now} + :for
WHERE id IN ({ids}) AND status IN ('running', 'interrupted')

-- name: requested
SELECT id, job_id, name, fire_at_ms, triggered_by, {now} - fire_at_ms
FROM outboxd_job_log WHERE status = 'requested' ORDER BY id LIMIT :most

-- name: take
-- Primary key.
UPDATE outboxd_job_log
SET status = 'running', node_id = :node, started_at_ms = {now}, alive_until_ms = {now} + :for
WHERE id = :id AND status = 'requested'

-- name: drop
-- Primary key.
UPDATE outboxd_job_log SET status = 'skipped', node_id = :node, message = :why WHERE id = :id AND status = 'requested'

-- name: own_running
SELECT id, name FROM outboxd_job_log WHERE status = 'running' AND node_id = :node ORDER BY id LIMIT :most

-- name: expired
SELECT id, name FROM outboxd_job_log WHERE status = 'running' AND alive_until_ms < {now} ORDER BY id LIMIT :most

-- name: close_own
-- Primary key. It took at least as long as it was seen alive.
UPDATE outboxd_job_log
SET status = 'interrupted', message = :why,
    duration_ms = CASE WHEN alive_until_ms - :for > started_at_ms THEN alive_until_ms - :for - started_at_ms ELSE 0 END
WHERE id = :id AND status = 'running' AND node_id = :node

-- name: close_expired
-- Primary key.
UPDATE outboxd_job_log
SET status = 'interrupted', message = :why,
    duration_ms = CASE WHEN alive_until_ms - :for > started_at_ms THEN alive_until_ms - :for - started_at_ms ELSE 0 END
WHERE id = :id AND status = 'running' AND alive_until_ms < {now}

-- name: check_jobs
-- No row has this id: whether the table is there and may be read.
SELECT id FROM outboxd_job WHERE id = 0

-- name: check_update
UPDATE outboxd_job_log SET status = status WHERE id = 0

-- name: check_insert
INSERT INTO outboxd_job_log (job_id, name, fire_at_ms, status)
SELECT id, name, 0, 'skipped' FROM outboxd_job WHERE id = 0
