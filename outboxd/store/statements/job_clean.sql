-- Old lines of the job log, for both dialects. {rows} is a condition on id.

-- name: oldest
-- Primary key, from the low end. Ids ascend with time, so old lines lie in front.
SELECT id, fire_at_ms < {now} - :age AS is_old, status IN ('requested', 'running') AS is_open
FROM outboxd_job_log WHERE id > :after ORDER BY id LIMIT :most

-- name: delete
-- Primary key. A line that is open has not ended, whenever it began.
DELETE FROM outboxd_job_log WHERE {rows} AND status NOT IN ('requested', 'running')
