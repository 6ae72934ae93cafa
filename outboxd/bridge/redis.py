"""A consumer group of a Redis stream. What is taken and not finished stays pending, and is claimed again when it has
been idle for invisible_s; dead letters are a stream of their own, `{stream}:{group}:dead`.

Loads redis.
"""

import contextlib
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any

from redis.exceptions import RedisError, ResponseError

from outboxd.bridge.api import Delivery
from outboxd.clients.redis import connect
from outboxd.errors import SubscriptionError
from outboxd.redact import clip, redact

FIELD = b"m"
CLAIM_EVERY_S = 1.0
"""So often it is looked whether something that was given back, or that a consumer left behind, is due again."""
_DEAD_MOST = 100_000
_COMMAND = re.compile(r"^Command # \d+ \(.*\) of pipeline caused error: ", re.DOTALL)
"""What redis-py puts before an error of a pipeline: the command, with what it was to write."""


class RedisSubscription:
    """A Subscription; see api.py. The group is made if it is not there, and begins with the oldest entry. consumer: one
    process at a time has that name; what an earlier one of the name left unfinished comes first.
    """

    def __init__(
        self,
        url: str,
        stream: str,
        group: str,
        consumer: str,
        *,
        invisible_s: float,
        timeout_s: float = 5.0,
    ) -> None:
        self.invisible_s = invisible_s
        self.dead = f"{stream}:{group}:dead"
        self._redis = connect(url, timeout_s)
        self._longest_s = timeout_s / 2  # a read that blocks for longer would be taken for a server that hangs
        self._stream, self._group, self._consumer = stream, group, consumer
        self._claim_at_s = 0.0
        self._left_behind_from: str | bytes | None = "0"

    def receive(self, limit: int, wait_s: float) -> list[Delivery]:
        """What was left behind, what is due again, else what is new."""
        with self._errors():
            try:
                return self._receive(limit, wait_s)
            except ResponseError as error:
                if "NOGROUP" not in str(error):
                    raise
            self._make_group()  # the first of all, or the stream was deleted
            return []

    def _receive(self, limit: int, wait_s: float) -> list[Delivery]:
        if self._left_behind_from is not None and (left := self._left_behind(self._left_behind_from, limit)):
            return left
        return self._due_again(limit) or self._new(limit, min(wait_s, self._longest_s))

    def _left_behind(self, from_id: str | bytes, limit: int) -> list[Delivery]:
        entries = self._read(from_id, limit, 1)
        self._left_behind_from = entries[-1][0] if entries else None
        # Those that the stream was cut by since have no fields, and there is nothing to be done about them.
        gone = [entry[0] for entry in entries if not entry[1]]
        if gone:
            self._redis.xack(self._stream, self._group, *gone)
        return [_delivery(entry, self._attempt(entry[0])) for entry in entries if entry[1]]

    def _new(self, limit: int, wait_s: float) -> list[Delivery]:
        block_ms = max(1, round(wait_s * 1000))  # 0 would mean for ever
        return [_delivery(entry, 1) for entry in self._read(">", limit, block_ms)]

    def _read(self, from_id: str | bytes, limit: int, block_ms: int) -> list[Any]:
        wanted: Any = {self._stream: from_id}
        answer: Any = self._redis.xreadgroup(self._group, self._consumer, wanted, count=limit, block=block_ms)
        streams = answer.values() if isinstance(answer, dict) else [entries for _, entries in answer or ()]
        return [entry for entries in streams for entry in _flat(entries)]

    def _due_again(self, limit: int) -> list[Delivery]:
        if time.monotonic() < self._claim_at_s:
            return []
        answer: Any = self._redis.xautoclaim(
            self._stream, self._group, self._consumer, round(self.invisible_s * 1000), count=limit
        )
        entries = [entry for entry in answer[1] if entry[1]]
        if not entries:
            self._claim_at_s = time.monotonic() + CLAIM_EVERY_S
        return [_delivery(entry, self._attempt(entry[0])) for entry in entries]

    def _attempt(self, entry_id: bytes) -> int:
        found: Any = self._redis.xpending_range(self._stream, self._group, entry_id, entry_id, 1)
        return int(found[0]["times_delivered"]) if found else 1

    def done(self, deliveries: Iterable[Delivery]) -> None:
        """Acknowledge."""
        ids: list[Any] = [delivery.handle for delivery in deliveries]
        if ids:
            with self._errors():
                self._redis.xack(self._stream, self._group, *ids)

    def hold(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Idle from now on."""
        held = list(deliveries)
        self._set_idle([delivery.handle for delivery in held], 0.0)
        return held

    def give_back(self, delivery: Delivery, after_s: float) -> None:
        """Due again after after_s, at the most after invisible_s: Redis knows no idle time below zero."""
        self._set_idle([delivery.handle], self.invisible_s - min(after_s, self.invisible_s))
        self._claim_at_s = min(self._claim_at_s, time.monotonic() + after_s)

    def release(self, deliveries: Iterable[Delivery], after_s: float) -> None:
        """The counter of deliveries goes back by one, since it rises when they come again."""
        by_attempt: dict[int, list[Any]] = {}
        for delivery in deliveries:
            by_attempt.setdefault(delivery.attempt, []).append(delivery.handle)
        for attempt, ids in by_attempt.items():
            self._set_idle(ids, self.invisible_s - min(after_s, self.invisible_s), max(0, attempt - 1))
        self._claim_at_s = min(self._claim_at_s, time.monotonic() + after_s)

    def _set_idle(self, ids: list[Any], idle_s: float, count: int | None = None) -> None:
        if ids:
            with self._errors():  # justid: the counter of deliveries stays as it is, unless it is given
                self._redis.xclaim(
                    self._stream, self._group, self._consumer, 0, ids, idle=round(idle_s * 1000), retrycount=count,
                    justid=True,
                )  # fmt: skip

    def bury(self, delivery: Delivery, reason: str) -> None:
        """Both at once: it is in one of the two streams, never in none."""
        with self._errors():
            pipeline = self._redis.pipeline(transaction=True)
            fields: Any = {FIELD: delivery.body, b"reason": reason, b"attempts": delivery.attempt}
            pipeline.xadd(self.dead, fields, maxlen=_DEAD_MOST, approximate=True)
            pipeline.xack(self._stream, self._group, delivery.handle)  # type: ignore[arg-type]  # an id, as read
            pipeline.execute()

    def close(self) -> None:
        """The connection goes; the group stays."""
        with contextlib.suppress(RedisError, OSError):
            self._redis.close()

    def _make_group(self) -> None:
        try:
            self._redis.xgroup_create(self._stream, self._group, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, OSError) as error:
            text = _COMMAND.sub("", str(error))
            raise SubscriptionError(f"the stream {self._stream}: {clip(redact(text), 300)}") from error


def _flat(entries: Any) -> Iterator[Any]:
    """Entries as (id, fields): the two protocol versions nest them differently."""
    for entry in entries:
        if isinstance(entry, list) and entry and isinstance(entry[0], list | tuple):
            yield from entry
        else:
            yield entry


def _delivery(entry: Any, attempt: int) -> Delivery:
    entry_id, fields = entry
    return Delivery(bytes((fields or {}).get(FIELD, b"")), attempt, entry_id)
