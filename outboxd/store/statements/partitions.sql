-- Who owns the partitions of an ordered lane: the same in both dialects.

-- name: owners
SELECT number, worker_id, token, lock_until_ms - {now}, wanted_by, wanted_until_ms - {now}
FROM outboxd_partition WHERE lane = :lane ORDER BY number

-- name: acquire
-- Primary key. What is free, or was this very worker's before it died.
UPDATE outboxd_partition
SET worker_id = :worker, token = :owner, lock_until_ms = {now} + :lease, wanted_by = '', wanted_until_ms = 0
WHERE lane = :lane AND number IN ({numbers}) AND (lock_until_ms <= {now} OR worker_id = :former)

-- name: keep
-- Primary key. Also the fence of a claim: it finds only what is still owned.
UPDATE outboxd_partition SET lock_until_ms = {now} + :lease
WHERE lane = :lane AND number IN ({numbers}) AND token = :owner

-- name: owned
SELECT number FROM outboxd_partition WHERE lane = :lane AND token = :owner

-- name: ask
-- Primary key.
UPDATE outboxd_partition SET wanted_by = :worker, wanted_until_ms = {now} + :lease
WHERE lane = :lane AND number IN ({numbers}) AND wanted_until_ms <= {now}

-- name: release
-- Primary key.
UPDATE outboxd_partition SET worker_id = '', token = 0, lock_until_ms = 0
WHERE lane = :lane AND number IN ({numbers}) AND token = :owner

-- name: withdraw
-- Primary key.
UPDATE outboxd_partition SET wanted_by = '', wanted_until_ms = 0
WHERE lane = :lane AND number IN ({numbers}) AND wanted_by = :worker
