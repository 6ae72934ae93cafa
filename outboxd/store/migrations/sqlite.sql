-- The tables on SQLite 3.35+, version 1: the same names and defaults as in mysql.sql. One column a line: what a table of
-- the user's own lacks is added from here. An index belongs to the database, not to its table, so it carries its name.
-- Ordered lanes alone have room_partition, a hash of functions that SQLite has: over the last eight characters and some of
-- the first, so that numbered rooms spread as well as random ones and those that begin with a time. What is NULL in a
-- table of the user's own goes to partition 0.

-- name: lane
CREATE TABLE IF NOT EXISTS {table} (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  app_code TEXT NOT NULL DEFAULT '',
  event_id TEXT NOT NULL,
  event_type TEXT NOT NULL,
  room_id TEXT NOT NULL,
  envelope BLOB NOT NULL,
  content_type TEXT NOT NULL DEFAULT 'application/json',
  headers TEXT NULL,
  status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending','delivering','delivered','retryable','failed')),
  worker_id TEXT NOT NULL DEFAULT '',
  claim_token INTEGER NOT NULL DEFAULT 0,
  lock_until_ms INTEGER NOT NULL DEFAULT 0,
  retry_count INTEGER NOT NULL DEFAULT 0,
  next_retry_at_ms INTEGER NOT NULL DEFAULT 0,
  published_to TEXT NULL,
  last_error TEXT NULL,
  created_at_ms INTEGER NOT NULL DEFAULT ({now}),
  updated_at_ms INTEGER NOT NULL DEFAULT 0,
  delivered_at_ms INTEGER NOT NULL DEFAULT 0,
  due_at_ms INTEGER AS (CASE status WHEN 'delivered' THEN -1 WHEN 'failed' THEN -2 ELSE CASE WHEN next_retry_at_ms <= 0 THEN 9007199254740991 ELSE next_retry_at_ms END END) VIRTUAL
)

-- name: event
CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {table} (app_code, event_id)

-- name: due
CREATE INDEX IF NOT EXISTS {index} ON {table} (due_at_ms)

-- name: partition_column
ALTER TABLE {table} ADD COLUMN room_partition INTEGER AS (COALESCE(((((unicode(substr((app_code || '|' || CASE room_id WHEN '' THEN event_id ELSE room_id END || '|'), -2)) * 1 +
  unicode(substr((app_code || '|' || CASE room_id WHEN '' THEN event_id ELSE room_id END || '|'), -3)) * 10 +
  unicode(substr((app_code || '|' || CASE room_id WHEN '' THEN event_id ELSE room_id END || '|'), -4)) * 100 +
  unicode(substr((app_code || '|' || CASE room_id WHEN '' THEN event_id ELSE room_id END || '|'), -5)) * 1000 +
  unicode(substr((app_code || '|' || CASE room_id WHEN '' THEN event_id ELSE room_id END || '|'), -6)) * 7919 +
  unicode(substr((app_code || '|' || CASE room_id WHEN '' THEN event_id ELSE room_id END || '|'), -7)) * 104729 +
  unicode(substr((app_code || '|' || CASE room_id WHEN '' THEN event_id ELSE room_id END || '|'), -8)) * 611953 +
  unicode(substr((app_code || '|' || CASE room_id WHEN '' THEN event_id ELSE room_id END || '|'), -9)) * 15485863 +
  unicode(substr(CASE room_id WHEN '' THEN event_id ELSE room_id END || '||||||||', 4)) * 31 +
  unicode(substr(CASE room_id WHEN '' THEN event_id ELSE room_id END || '||||||||', 6)) * 257 +
  unicode(substr(CASE room_id WHEN '' THEN event_id ELSE room_id END || '||||||||', 7)) * 4099 +
  unicode(substr(CASE room_id WHEN '' THEN event_id ELSE room_id END || '||||||||', 8)) * 65537 +
  length(app_code) * 13 + unicode(app_code || '|') * 17 + unicode(substr('|' || app_code, -1)) * 19 +
  unicode(substr('||' || app_code, -2)) * 23
) % 1000003) * 40503) >> 10) & 63, 0)) VIRTUAL

-- name: partition_index
CREATE INDEX IF NOT EXISTS {index} ON {table} (room_partition, due_at_ms)

-- name: write_partitions
INSERT OR IGNORE INTO outboxd_partition (lane, number) WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 63) SELECT '{lane}', n FROM numbers

-- name: schema
CREATE TABLE IF NOT EXISTS outboxd_schema (
  lane TEXT NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL
)

-- name: lanes
CREATE TABLE IF NOT EXISTS outboxd_lane (
  lane TEXT NOT NULL PRIMARY KEY,
  paused INTEGER NOT NULL DEFAULT 0,
  paused_by TEXT NOT NULL DEFAULT '',
  last_cleanup_ms INTEGER NOT NULL DEFAULT 0,
  updated_at_ms INTEGER NOT NULL DEFAULT 0
)

-- name: inbox
CREATE TABLE IF NOT EXISTS outboxd_inbox (
  consumer TEXT NOT NULL,
  app_code TEXT NOT NULL DEFAULT '',
  event_id TEXT NOT NULL,
  done_at_ms INTEGER NOT NULL,
  PRIMARY KEY (consumer, app_code, event_id)
) WITHOUT ROWID

-- name: partitions
CREATE TABLE IF NOT EXISTS outboxd_partition (
  lane TEXT NOT NULL,
  number INTEGER NOT NULL,
  worker_id TEXT NOT NULL DEFAULT '',
  token INTEGER NOT NULL DEFAULT 0,
  lock_until_ms INTEGER NOT NULL DEFAULT 0,
  wanted_by TEXT NOT NULL DEFAULT '',
  wanted_until_ms INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (lane, number)
) WITHOUT ROWID

-- name: jobs
CREATE TABLE IF NOT EXISTS outboxd_job (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  cron_expression TEXT NOT NULL,
  url TEXT NOT NULL,
  params TEXT NOT NULL DEFAULT '',
  execute_policy INTEGER NOT NULL DEFAULT 1,
  is_sync INTEGER NOT NULL DEFAULT 1,
  status INTEGER NOT NULL DEFAULT 0,
  remark TEXT NOT NULL DEFAULT '',
  created_at_ms INTEGER NOT NULL DEFAULT 0,
  updated_at_ms INTEGER NOT NULL DEFAULT 0,
  deleted_at_ms INTEGER NOT NULL DEFAULT 0
)

-- name: job_log
CREATE TABLE IF NOT EXISTS outboxd_job_log (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  job_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  tick_ms INTEGER NULL,
  fire_at_ms INTEGER NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('requested','running','succeeded','failed','skipped','interrupted')),
  triggered_by TEXT NOT NULL DEFAULT 'cron',
  node_id TEXT NOT NULL DEFAULT '',
  started_at_ms INTEGER NOT NULL DEFAULT 0,
  duration_ms INTEGER NOT NULL DEFAULT 0,
  alive_until_ms INTEGER NOT NULL DEFAULT 0,
  message TEXT NOT NULL DEFAULT '',
  exception TEXT NOT NULL DEFAULT '',
  UNIQUE (job_id, tick_ms),
  UNIQUE (job_id, id),
  UNIQUE (status, id)
)

-- name: write_version
INSERT INTO outboxd_schema (lane, version) VALUES (:lane, :version) ON CONFLICT (lane) DO UPDATE SET version = :version

-- name: write_lane
INSERT OR IGNORE INTO outboxd_lane (lane) VALUES (:lane)

-- name: write_jobs
INSERT INTO outboxd_job (name, cron_expression, url, execute_policy, status, remark, created_at_ms, updated_at_ms)
SELECT name, cron, name, 2, 1, remark, {now}, {now} FROM (
  SELECT 'LogClean' AS name, '0 30 2 * * *' AS cron, 'deletes old lines of the job log' AS remark
  UNION ALL SELECT 'OutboxClean', '0 0 3 * * *', 'deletes delivered events, where retention is set'
) AS built_in WHERE NOT EXISTS (SELECT 1 FROM outboxd_job)
