-- The tables on SQLite 3.35+, version 1: the same names and defaults as in mysql.sql. One column a line: what a table of
-- the user's own lacks is added from here. An index belongs to the database, not to its table, so it carries its name.

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

-- name: write_version
INSERT INTO outboxd_schema (lane, version) VALUES (:lane, :version) ON CONFLICT (lane) DO UPDATE SET version = :version

-- name: write_lane
INSERT OR IGNORE INTO outboxd_lane (lane) VALUES (:lane)
