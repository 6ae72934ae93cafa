-- What both dialects write alike about old rows. A lane's own names for columns concern `still_…` alone.

-- name: still_delivered
-- Not a statement: what is asked again of a row before it goes, for {still}.
status = 'delivered'

-- name: still_failed
status = 'failed'

-- name: still_active
(status IN ('pending', 'retryable') OR (status = 'delivering' AND lock_until_ms <= {now}))

-- name: last_round
SELECT {now}, last_cleanup_ms FROM outboxd_lane WHERE lane = :lane

-- name: win_round
-- Primary key. Only the first one finds what it has read.
UPDATE outboxd_lane SET last_cleanup_ms = {now} WHERE lane = :lane AND last_cleanup_ms = :seen

-- name: now
SELECT {now}
