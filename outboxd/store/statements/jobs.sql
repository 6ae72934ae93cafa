-- What operators do with scheduled jobs, for both dialects. {for_update} locks a row by its primary key (SQLite's
-- transactions lock the file), {last_id} is the id of the row that this session wrote last. Jobs are few: what has no
-- index reads all of them. The log may have millions of lines: it is read along one of its indexes, by windows of ids,
-- and changed by primary key. {later}: updated_at_ms always grows, so that whoever compares it sees every change.

-- name: now
SELECT {now}

-- name: later
-- Not a statement: for {later}.
CASE WHEN {now} > updated_at_ms THEN {now} ELSE updated_at_ms + 1 END

-- name: add
INSERT INTO outboxd_job (name, cron_expression, url, params, execute_policy, is_sync, status, remark, created_at_ms,
                         updated_at_ms)
VALUES (:name, :cron, :url, :params, :policy, :sync, :status, :remark, {now}, {now})

-- name: last_id
SELECT {last_id}

-- name: count_all
-- Those that are there.
SELECT COUNT(*) FROM outboxd_job WHERE deleted_at_ms = 0

-- name: job
-- Primary key.
SELECT id, name, cron_expression, url, params, execute_policy, is_sync, status, remark, created_at_ms, updated_at_ms,
       deleted_at_ms
FROM outboxd_job WHERE id = :id {for_update}

-- name: page
-- Primary key, forwards. A filter that is NULL takes everything; part: a pattern for LIKE.
SELECT id, name, cron_expression, url, params, execute_policy, is_sync, status, remark, created_at_ms, updated_at_ms,
       deleted_at_ms
FROM outboxd_job
WHERE id > :after AND deleted_at_ms = 0 AND (:status IS NULL OR status = :status)
      AND (:part IS NULL OR LOWER(name) LIKE LOWER(:part) ESCAPE '!')
ORDER BY id LIMIT :most

-- name: count
SELECT COUNT(*) FROM outboxd_job
WHERE deleted_at_ms = 0 AND (:status IS NULL OR status = :status)
      AND (:part IS NULL OR LOWER(name) LIKE LOWER(:part) ESCAPE '!')

-- name: update
-- Primary key.
UPDATE outboxd_job
SET name = :name, cron_expression = :cron, url = :url, params = :params, execute_policy = :policy, is_sync = :sync,
    status = :status, remark = :remark, updated_at_ms = {later}
WHERE id = :id AND deleted_at_ms = 0

-- name: set_status
-- Primary key.
UPDATE outboxd_job SET status = :status, updated_at_ms = {later} WHERE id = :id AND deleted_at_ms = 0

-- name: delete
-- Primary key. Not running any more either, for whoever looks at the status alone.
UPDATE outboxd_job SET status = 0, deleted_at_ms = {now}, updated_at_ms = {later} WHERE id = :id AND deleted_at_ms = 0

-- name: mounted
SELECT id FROM outboxd_job WHERE status = 1 AND deleted_at_ms = 0 ORDER BY id

-- name: waiting
-- {open_index}: what was asked for and nobody has taken up, at most :most of it. (+: not by the job's index.)
SELECT id FROM outboxd_job_log {open_index} WHERE status = 'requested' AND +job_id = :job ORDER BY id LIMIT :most

-- name: request
INSERT INTO outboxd_job_log (job_id, name, tick_ms, fire_at_ms, status, triggered_by)
VALUES (:job, :name, NULL, {now}, 'requested', :who)

-- name: drop_requests
-- Primary key.
UPDATE outboxd_job_log SET status = 'skipped', message = :why WHERE id IN ({ids}) AND status = 'requested'

-- name: run
-- Primary key.
SELECT id, job_id, name, fire_at_ms, status, tick_ms, triggered_by, node_id, started_at_ms, duration_ms, alive_until_ms,
       message, exception
FROM outboxd_job_log WHERE id = :id

-- name: log_all
-- Primary key, backwards.
SELECT id FROM outboxd_job_log {by_key} WHERE id < :before ORDER BY id DESC LIMIT :most

-- name: log_of_job
-- {runs_index}, backwards.
SELECT id FROM outboxd_job_log {runs_index} WHERE job_id = :job AND id < :before ORDER BY id DESC LIMIT :most

-- name: log_of_status
-- {open_index}, backwards.
SELECT id FROM outboxd_job_log {open_index} WHERE status = :status AND id < :before ORDER BY id DESC LIMIT :most

-- name: log_rows
-- Primary key. fire_at_ms of the last row of a window is looked at apart, by log_time.
SELECT id, job_id, name, fire_at_ms, status, tick_ms, triggered_by, node_id, started_at_ms, duration_ms, alive_until_ms,
       message, exception
FROM outboxd_job_log {by_key}
WHERE id IN ({ids}) AND (:job IS NULL OR job_id = :job) AND (:status IS NULL OR status = :status)
      AND (:since IS NULL OR fire_at_ms >= :since) AND (:until IS NULL OR fire_at_ms < :until)
ORDER BY id DESC

-- name: log_time
-- Primary key.
SELECT MAX(fire_at_ms) FROM outboxd_job_log {by_key} WHERE id IN ({ids})

-- name: keep_all
-- Primary key. No row has it; where nothing may be written it is refused all the same.
UPDATE outboxd_job_log SET status = status WHERE id = 0
