"""What the tables say, asked while somebody wants to know, and kept: an answer never waits for a slow database.

A thread of its own asks as long as scrapes or probes come in: every 5 s whether the database answers, and for numbers
at most a twentieth of the time. Without scrapes and probes the database is left alone.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from outboxd.config.schema import Lane
from outboxd.errors import StoreError, StoreRefused
from outboxd.store.connection import Connection
from outboxd.store.desk import Overview, overview

EVERY_S = 5.0
SHARE = 20
"""Times its own duration, a look at the tables is followed by a pause. That the database answers is asked meanwhile: it
must not count as away, or as there, for as long as a slow look has made the pause."""
WANTED_S = 60.0
"""So long after the last question it goes on asking."""
FIRST_S = 1.0
"""How long a question waits for the first answer."""


@dataclass(frozen=True, slots=True)
class Sample:
    """is_up: did the database answer? lanes: numbers by lane, of those that could be read. problems: why not, of the
    others. at_s: of is_up; numbers_at_s: of the lanes; time.monotonic().
    """

    is_up: bool = False
    at_s: float = 0.0
    numbers_at_s: float = 0.0
    lanes: Mapping[str, Overview] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


class Sampler:
    """Asks in a thread that `start` begins; `sample` may be called by any."""

    def __init__(self, lanes: Sequence[Lane], connect: Callable[[], Connection]) -> None:
        self._lanes = lanes
        self._connect = connect
        self._connection: Connection | None = None
        self._changed = threading.Condition()
        self._sample = Sample()
        self._numbers_from_s = 0.0
        self._numbers_until_s = 0.0
        self._asked_until_s = 0.0

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, name="sampler", daemon=True).start()

    def sample(self, with_numbers: bool = True) -> Sample:
        """The latest answer. Without with_numbers only is_up is sure to be fresh."""
        now_s = time.monotonic()
        with self._changed:
            asleep = self._asked_until_s < now_s
            self._asked_until_s = now_s + WANTED_S
            new_numbers = with_numbers and self._numbers_until_s < now_s
            if with_numbers:
                self._numbers_until_s = now_s + WANTED_S
            self._changed.notify_all()
            if asleep or new_numbers:
                self._changed.wait_for(lambda: self._has_answered(now_s, with_numbers), FIRST_S)
            return self._sample

    def _has_answered(self, asked_s: float, with_numbers: bool) -> bool:
        found = self._sample
        return found.at_s > asked_s and bool(not with_numbers or found.lanes or found.problems)

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._asked_until_s < time.monotonic():
                    self._disconnect()
                self._changed.wait_for(lambda: self._asked_until_s >= time.monotonic())
                rested = not self._sample.lanes or time.monotonic() >= self._numbers_from_s
                with_numbers = self._wants_numbers() and rested
            start_s = time.monotonic()
            taken = self._take(with_numbers)
            if with_numbers:
                now_s = time.monotonic()
                self._numbers_from_s = now_s + SHARE * (now_s - start_s)
            with self._changed:
                self._sample = taken
                self._changed.notify_all()
                if with_numbers or taken.lanes:
                    self._changed.wait_for(lambda: False, EVERY_S)
                else:  # the first question for numbers is answered at once
                    self._changed.wait_for(self._wants_numbers, EVERY_S)

    def _wants_numbers(self) -> bool:
        return self._numbers_until_s >= time.monotonic()

    def _take(self, with_numbers: bool) -> Sample:
        is_old = self._connection is not None
        taken = self._ask(with_numbers)
        if is_old and not taken.is_up:  # it may be the session alone that has ended
            taken = self._ask(with_numbers)
        return taken

    def _ask(self, with_numbers: bool) -> Sample:
        lanes: dict[str, Overview] = {}
        problems: dict[str, str] = {}
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._connection.ping()
            if not with_numbers:
                return self._kept()
            for lane in self._lanes:
                try:
                    lanes[lane.name] = overview(self._connection, lane)
                except StoreRefused as error:
                    problems[lane.name] = str(error)
        except StoreError as error:
            self._disconnect()
            return Sample(False, time.monotonic(), 0.0, {}, {lane.name: str(error) for lane in self._lanes})
        now_s = time.monotonic()
        return Sample(True, now_s, now_s, lanes, problems)

    def _kept(self) -> Sample:
        """The database answers; the numbers are those of before, as long as somebody wants them."""
        last = self._sample
        if not last.is_up or not self._wants_numbers():
            return Sample(True, time.monotonic())
        return Sample(True, time.monotonic(), last.numbers_at_s, last.lanes, last.problems)

    def _disconnect(self) -> None:
        """A session that is silent for 30 s is ended by the server."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
