"""The settings of a lane. Frozen data, no I/O; schema.py has the others."""

from dataclasses import dataclass, field

PUBLISH_MODES = ("direct", "mq", "dual")
EXPONENTIAL = "exponential_backoff"
RETRY_STRATEGIES = (EXPONENTIAL, "fixed_interval")
BY_ROOM, BLOCK = "room", "block"
ORDERINGS = ("none", BY_ROOM)
ON_DEAD = ("continue", BLOCK)
PARTITIONS = 64
"""Of an ordered lane's rooms. A worker leases whole partitions, so more workers than these have nothing to do."""
MAX_DIRECT = 8
"""Publishers of one lane: their names and marks must fit `published_to`."""

COLUMNS = (
    "id", "app_code", "event_id", "event_type", "room_id", "envelope", "content_type", "headers", "status", "worker_id",
    "claim_token", "lock_until_ms", "retry_count", "next_retry_at_ms", "published_to", "last_error", "created_at_ms",
    "updated_at_ms", "delivered_at_ms", "due_at_ms",
)  # fmt: skip
"""Our names of every lane's columns."""
ROOM_PARTITION = "room_partition"
"""The column that an ordered lane's table has beside them."""
RENAMABLE = (*COLUMNS, ROOM_PARTITION)
"""The keys of `Lane.columns`."""


def least_lease_s(publish_timeout_s: float) -> float:
    """The shortest lease that outlives a publish: it is renewed at half-life, and a publish must fit behind that."""
    return 3 * publish_timeout_s + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One outbox table: its workers, publishers and settings. `name` is the table's.

    direct: names of publishers, up to MAX_DIRECT; mq: the name of the queue's. first: publishers that are asked in
    every mode, before the others. columns: our column's name → the table's, only where they differ. `lease_s` is never
    below least_lease_s(publish_timeout_s). stale_discard_after_s: an event older than that when its turn comes is
    deleted, not published. cleanup_…: every interval, unpublished rows older than active_after and finished ones older
    than terminal_after are deleted, at most batch_size a round. retention_s: delivered rows older than that are deleted
    by the job OutboxClean. Of all of these 0 is: never.
    """

    name: str
    enabled: bool = True
    publish_mode: str = "direct"
    direct: tuple[str, ...] = ()
    mq: str = "rocketmq"
    first: tuple[str, ...] = ()
    concurrency: int = 4
    poll_interval_s: float = 1.0
    batch_size: int = 100
    publish_timeout_s: float = 3.0
    lease_s: float = 15.0
    max_inflight_bytes: int = 16 * 1024 * 1024
    max_event_bytes: int = 8 * 1024 * 1024
    retry_strategy: str = "exponential_backoff"
    max_retry_count: int = 10
    initial_backoff_s: float = 5.0
    max_backoff_s: float = 300.0
    ordering: str = "none"
    on_dead: str = "continue"
    stale_discard_after_s: float = 0.0
    cleanup_interval_s: float = 0.0
    cleanup_active_after_s: float = 0.0
    cleanup_terminal_after_s: float = 0.0
    cleanup_batch_size: int = 50_000
    retention_s: float = 0.0
    columns: dict[str, str] = field(default_factory=dict)

    @property
    def is_ordered(self) -> bool:
        """Does each room get its events in the order of their ids?"""
        return self.ordering == BY_ROOM

    @property
    def blocks_on_dead(self) -> bool:
        """Does a dead letter hold up its room until a person has decided about it?"""
        return self.is_ordered and self.on_dead == BLOCK

    @property
    def discards_stale(self) -> bool:
        """Is an event dropped that is too old when its turn comes?"""
        return self.stale_discard_after_s > 0

    @property
    def cleans_up(self) -> bool:
        """Are old rows deleted, whether published or not?"""
        return self.cleanup_interval_s > 0 and max(self.cleanup_active_after_s, self.cleanup_terminal_after_s) > 0

    @property
    def publishers(self) -> tuple[str, ...]:
        """The names of all that get its events, in the order in which they are asked: all of them must accept."""
        direct = () if self.publish_mode == "mq" else self.direct
        queue = () if self.publish_mode == "direct" else (self.mq,)
        return tuple(dict.fromkeys((*self.first, *direct, *queue)))
