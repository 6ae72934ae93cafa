-- The room service's own tables; the outbox beside them is made by `outboxd init-db`.
CREATE TABLE IF NOT EXISTS room (
  room_id       VARCHAR(64)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
  owner_epoch   BIGINT       NOT NULL,           -- the fence: only who has the latest one commits
  owner_node    VARCHAR(64)  NOT NULL,
  version       BIGINT       NOT NULL,           -- of the latest event
  title         VARCHAR(100) CHARACTER SET utf8mb4 NOT NULL,
  member_count  INT          NOT NULL,
  heat          BIGINT       NOT NULL,
  updated_at_ms BIGINT       NOT NULL
) ENGINE=InnoDB;

-- Every command that was done, its answer, and the events that it made: with the outbox the truth about a room.
CREATE TABLE IF NOT EXISTS room_command (
  command_id    VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  room_id       VARCHAR(64)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  version       BIGINT       NOT NULL,           -- of its last event
  command       MEDIUMBLOB   NOT NULL,
  events        MEDIUMBLOB   NOT NULL,
  answer        MEDIUMBLOB   NOT NULL,
  created_at_ms BIGINT       NOT NULL,
  UNIQUE KEY room_version (room_id, version)
) ENGINE=InnoDB;

-- The room at some version, so that recovery need not read the log from its beginning.
CREATE TABLE IF NOT EXISTS room_snapshot (
  room_id       VARCHAR(64)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
  version       BIGINT       NOT NULL,
  state         MEDIUMBLOB   NOT NULL
) ENGINE=InnoDB;

-- The wallet. It stands here for a service of its own: nobody else reads or writes these three, nor in one transaction
-- with the tables above.
CREATE TABLE IF NOT EXISTS wallet_account (
  user_id       VARCHAR(32)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  coins         BIGINT       NOT NULL
) ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS wallet_debit (
  command_id    VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  room_id       VARCHAR(64)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  user_id       VARCHAR(32)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  coins         BIGINT       NOT NULL,
  state         ENUM('held', 'spent', 'refunded') NOT NULL,
  updated_at_ms BIGINT       NOT NULL,
  KEY open_debits (state, updated_at_ms),
  KEY room_debits (room_id, state)
) ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS wallet_fence (
  room_id       VARCHAR(64)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
  epoch         BIGINT       NOT NULL            -- debits of earlier owners are refused
) ENGINE=InnoDB;
