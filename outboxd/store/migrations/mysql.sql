-- The tables on MySQL 8.0.1+ and MariaDB 10.6+, version 1. One column a line: an older table is altered to these very
-- definitions. Every column that a claim or a settle writes has a fixed width and is never null, so that no row grows.
-- Ordered lanes alone have room_partition, and the index rooms instead of due: a hash of the room, of the event where there is none. (LENGTH: '' = ' ' is true.)

-- name: lane
CREATE TABLE {table} (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  app_code VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  event_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  event_type VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  room_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  envelope MEDIUMBLOB NOT NULL,
  content_type VARCHAR(64) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL DEFAULT 'application/json',
  headers JSON NULL,
  status ENUM('pending','delivering','delivered','retryable','failed') NOT NULL DEFAULT 'pending',
  worker_id CHAR(64) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL DEFAULT '',
  claim_token BIGINT NOT NULL DEFAULT 0,
  lock_until_ms BIGINT NOT NULL DEFAULT 0,
  retry_count INT NOT NULL DEFAULT 0,
  next_retry_at_ms BIGINT NOT NULL DEFAULT 0,
  published_to VARCHAR(255) CHARACTER SET ascii COLLATE ascii_general_ci NULL,
  last_error VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NULL,
  created_at_ms BIGINT NOT NULL DEFAULT {now},
  updated_at_ms BIGINT NOT NULL DEFAULT 0,
  delivered_at_ms BIGINT NOT NULL DEFAULT 0,
  due_at_ms BIGINT AS (CASE status WHEN 'delivered' THEN -1 WHEN 'failed' THEN -2 ELSE IF(next_retry_at_ms <= 0, 9007199254740991, next_retry_at_ms) END) VIRTUAL,
  PRIMARY KEY (id),
  UNIQUE KEY event (app_code, event_id){due_key}
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 ROW_FORMAT=DYNAMIC

-- name: partition_column
ALTER TABLE {table} ADD COLUMN room_partition TINYINT UNSIGNED AS ((IF(LENGTH(room_id) = 0, CRC32(event_id), CRC32(room_id)) ^ CRC32(app_code)) & 63) VIRTUAL

-- name: partition_index
ALTER TABLE {table} ADD KEY rooms (room_partition, due_at_ms)

-- name: write_partitions
INSERT IGNORE INTO outboxd_partition (lane, number) WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 63) SELECT '{lane}', n FROM numbers

-- name: schema
CREATE TABLE IF NOT EXISTS outboxd_schema (
  lane VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  version INT NOT NULL,
  PRIMARY KEY (lane)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 ROW_FORMAT=DYNAMIC

-- name: lanes
CREATE TABLE IF NOT EXISTS outboxd_lane (
  lane VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  paused TINYINT NOT NULL DEFAULT 0,
  paused_by VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  last_cleanup_ms BIGINT NOT NULL DEFAULT 0,
  updated_at_ms BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (lane)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 ROW_FORMAT=DYNAMIC

-- name: inbox
CREATE TABLE IF NOT EXISTS outboxd_inbox (
  consumer VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  app_code VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  event_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  done_at_ms BIGINT NOT NULL,
  PRIMARY KEY (consumer, app_code, event_id),
  KEY done (consumer, done_at_ms)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 ROW_FORMAT=DYNAMIC

-- name: partitions
CREATE TABLE IF NOT EXISTS outboxd_partition (
  lane VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  number TINYINT UNSIGNED NOT NULL,
  worker_id CHAR(64) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL DEFAULT '',
  token BIGINT NOT NULL DEFAULT 0,
  lock_until_ms BIGINT NOT NULL DEFAULT 0,
  wanted_by CHAR(64) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL DEFAULT '',
  wanted_until_ms BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (lane, number)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 ROW_FORMAT=DYNAMIC

-- name: jobs
CREATE TABLE IF NOT EXISTS outboxd_job (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  cron_expression VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  url VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  params VARCHAR(4096) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  execute_policy TINYINT NOT NULL DEFAULT 1,
  is_sync TINYINT NOT NULL DEFAULT 1,
  status TINYINT NOT NULL DEFAULT 0,
  remark VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  created_at_ms BIGINT NOT NULL DEFAULT 0,
  updated_at_ms BIGINT NOT NULL DEFAULT 0,
  deleted_at_ms BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 ROW_FORMAT=DYNAMIC

-- name: job_log
CREATE TABLE IF NOT EXISTS outboxd_job_log (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  job_id BIGINT UNSIGNED NOT NULL,
  name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  tick_ms BIGINT NULL,
  fire_at_ms BIGINT NOT NULL,
  status ENUM('requested','running','succeeded','failed','skipped','interrupted') NOT NULL,
  triggered_by VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT 'cron',
  node_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  started_at_ms BIGINT NOT NULL DEFAULT 0,
  duration_ms BIGINT NOT NULL DEFAULT 0,
  alive_until_ms BIGINT NOT NULL DEFAULT 0,
  message VARCHAR(1100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  exception VARCHAR(1100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  PRIMARY KEY (id),
  UNIQUE KEY tick (job_id, tick_ms),
  KEY runs (job_id, id),
  KEY open (status, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 ROW_FORMAT=DYNAMIC

-- name: write_version
INSERT INTO outboxd_schema (lane, version) VALUES (:lane, :version) ON DUPLICATE KEY UPDATE version = :version

-- name: write_lane
INSERT IGNORE INTO outboxd_lane (lane) VALUES (:lane)

-- name: write_jobs
INSERT INTO outboxd_job (name, cron_expression, url, execute_policy, status, remark, created_at_ms, updated_at_ms)
SELECT name, cron, name, 2, 1, remark, {now}, {now} FROM (
  SELECT 'LogClean' AS name, '0 30 2 * * *' AS cron, 'deletes old lines of the job log' AS remark
  UNION ALL SELECT 'OutboxClean', '0 0 3 * * *', 'deletes delivered events, where retention is set'
) AS built_in WHERE NOT EXISTS (SELECT 1 FROM outboxd_job)
