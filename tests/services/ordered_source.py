"""One worker's source of an ordered lane over a real store, turned by hand: what it claims ends when the test says."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outboxd.config.load import parse
from outboxd.config.schema import Breaker as BreakerSettings
from outboxd.config.schema import Config
from outboxd.event import DELIVERED, Event, Outcome
from outboxd.publishers.api import NOTHING, Waits
from outboxd.publishers.ordered_fanout import OrderedFanout
from outboxd.publishers.route import Route
from outboxd.relay.breaker import Breaker
from outboxd.relay.doorbell import Doorbell
from outboxd.relay.ledger import Ledger
from outboxd.relay.meter import Meter
from outboxd.relay.ordered import Ordered
from outboxd.relay.planner import Holding
from outboxd.store import open_store
from outboxd.store.api import ZERO, Store
from outboxd.supervisor.scoreboard import Scoreboard

CONFIG = """
database: {{url: "{url}"}}
outbox_worker: {{direct: [nothing], ordering: room, concurrency: 1, batch_size: {batch}, on_dead: {on_dead}{more}}}
publishers: {{nothing: {{type: "null"}}}}
"""
WORKER = "node/room_outbox-01"
ENOUGH_S = 20.0


def config_of(url: str, on_dead: str = "continue", more: str = "", batch: int = 10) -> Config:
    """Of an ordered lane. more: settings of the lane, as they stand in YAML, each behind a comma."""
    return parse(CONFIG.format(url=url, on_dead=on_dead, more=more, batch=batch), {}, "the test")


class Receiver:
    """A Publisher that answers at the next look. answers: by event id, instead of success; sent: in their order."""

    def __init__(self, chains: bool) -> None:
        self.chains = chains
        self.capacity = 1000
        self.answers: dict[str, Outcome] = {}
        self.sent: list[str] = []
        self.accepted: list[str] = []
        self.is_slow = False
        self._held: list[Event] = []

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Take it."""
        self.sent.append(event.event_id)
        self._held.append(event)
        return True

    def collect(self) -> list[tuple[Event, Outcome]]:
        """Answer all, unless it is slow."""
        if self.is_slow:
            return []
        held, self._held = self._held, []
        answers = [(event, self.answers.get(event.event_id, DELIVERED)) for event in held]
        self.accepted += [event.event_id for event, outcome in answers if outcome is DELIVERED]
        return answers

    def wait_on(self) -> Waits:
        """Nothing of its own."""
        return NOTHING

    def close(self, deadline_s: float) -> None:
        """Nothing is open."""


class OrderedRelay:
    """Ledger, fan-out and source of one worker; each `turn` is what its loop does in one round."""

    def __init__(self, config: Config, chains: bool = False) -> None:
        self.config = config
        self.lane = config.lanes["room_outbox"]
        self.receiver = Receiver(chains)
        self.breaker = Breaker(BreakerSettings())
        self.breaker.started(-1)
        self.breaker.judge(-1, DELIVERED, 0.0)  # past the lone probe of the start
        route = Route("nothing", self.receiver, self.breaker, bool, 0.0, 300.0)
        self.fanout = OrderedFanout([route], 3.0, self.lane.blocks_on_dead)
        slot = Scoreboard(1).slot(0)
        meter = Meter(None, slot.index, self.lane.name, self.fanout.routes)
        self.ledger = Ledger(self.lane, self.fanout, slot, meter, random.random)
        self.doorbell = Doorbell(None, self.lane.name)
        self.source = Ordered(self.lane, WORKER, self.ledger, self.fanout, meter, slot, self.doorbell)
        self.store = self.connect()

    def connect(self) -> Store:
        """A new session."""
        self.store = open_store(self.config.database, self.lane)
        self.ledger.recover(self.store, time.monotonic())
        self.source.connected(self.store, time.monotonic(), 0.0)
        return self.store

    def holding(self) -> Holding:
        """What the loop tells its source."""
        ledger, fanout, now_s = self.ledger, self.fanout, time.monotonic()
        return Holding(
            ledger.count, ledger.payload_bytes, fanout.waiting, ledger.has_suspect, fanout.appetite(now_s),
            fanout.all_closed,
        )  # fmt: skip

    def turn(self) -> bool:
        """One round; False if nothing was to be done."""
        now_s = time.monotonic()
        self.ledger.collect(now_s)
        self.source.keep(self.store, now_s)
        self.ledger.renew(self.store, now_s)
        wrote = self.source.turn(self.store, now_s, self.holding())
        is_busy = wrote is not None
        if not is_busy and self.ledger.must_settle(now_s, 0.0, hurry=True):
            self.ledger.exchange(self.store, None, ZERO, now_s)
            is_busy = True
        self.fanout.pump(time.monotonic())
        return is_busy

    def until(self, is_true: Callable[[], bool], what: str) -> None:
        """Turn until it is; one second of the source's waits may pass unslept."""
        end_s = time.monotonic() + ENOUGH_S
        while not is_true():
            assert time.monotonic() < end_s, f"waited in vain for {what}"
            self.turn()

    def close(self) -> None:
        """The end."""
        self.doorbell.close()
        self.store.close()


Relays = Callable[..., OrderedRelay]


@pytest.fixture
def relays(database_url: str, table: object) -> Iterator[Relays]:
    """Makes workers of the test's own fixture `table`, which are closed at the end."""
    made: list[OrderedRelay] = []

    def make(chains: bool = False, on_dead: str = "continue", more: str = "", batch: int = 10) -> OrderedRelay:
        made.append(OrderedRelay(config_of(database_url, on_dead, more, batch), chains))
        return made[-1]

    yield make
    for relay in made:
        relay.close()


def lane_file(tmp_path: Path) -> str:
    """The URL of an embedded database."""
    return f"sqlite:///{tmp_path / 'outbox.db'}"
