"""A fan-out over publishers whose far side is the test: what was submitted ends when and how the test says."""

from collections.abc import Callable

from outboxd.config.schema import Breaker as Settings
from outboxd.event import DELIVERED, Event, Outcome
from outboxd.publishers.api import NOTHING, Waits
from outboxd.publishers.fanout import Fanout
from outboxd.publishers.route import Item, Route
from outboxd.relay.breaker import Breaker
from tests.services.publishing import make_event

TIMEOUT_S = 3.0
LEASE_S = 1000.0


class FarSide:
    """A Publisher; see publishers/api.py."""

    worn_out = False

    def __init__(self, capacity: int = 1000) -> None:
        self.capacity = capacity
        self.held: dict[int, tuple[Event, float]] = {}
        self.sent: list[int] = []
        self.closed_by_s: float | None = None
        self._done: list[tuple[Event, Outcome]] = []

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Hold it until the test answers."""
        if len(self.held) >= self.capacity:
            return False
        self.held[event.id] = (event, deadline_s)
        self.sent.append(event.id)
        return True

    def answer(self, outcome: Outcome = DELIVERED, *event_ids: int) -> None:
        """End these publishes, or all."""
        for event_id in event_ids or tuple(self.held):
            self._done.append((self.held.pop(event_id)[0], outcome))

    def collect(self) -> list[tuple[Event, Outcome]]:
        """What the test has answered."""
        done, self._done = self._done, []
        return done

    def wait_on(self) -> Waits:
        """Nothing of its own."""
        return NOTHING

    def close(self, deadline_s: float) -> None:
        """Remember by when."""
        self.closed_by_s = deadline_s


class Fanned:
    """A fan-out, its far sides by name, and the outcomes that have come out of it by event id."""

    def __init__(
        self,
        *names: str,
        capacity: int = 1000,
        max_rate: float = 0.0,
        warm: bool = True,
        wants: dict[str, Callable[[str], bool]] | None = None,
        first: tuple[str, ...] = (),
        **breaker: float,
    ) -> None:
        self.far = {name: FarSide(capacity) for name in names}
        self.breakers = {name: Breaker(Settings(**breaker)) for name in names}  # type: ignore[arg-type]
        self.routes = {
            name: Route(name, far, self.breakers[name], (wants or {}).get(name, _all), max_rate, 300.0, name in first)
            for name, far in self.far.items()
        }
        self.fanout = Fanout(list(self.routes.values()), TIMEOUT_S)
        self.outcomes: dict[int, Outcome] = {}
        self.unmatched = 0
        if warm:  # past the lone probe of the start
            for made in self.breakers.values():
                made.started(-1)
                made.judge(-1, DELIVERED, 0.0)

    def offer(self, count: int = 1, now_s: float = 0.0, lease_s: float = LEASE_S, **columns: object) -> list[int]:
        """New events go in and as far as they may; their ids."""
        items = [Item(make_event(**columns), 7, lease_s) for _ in range(count)]
        self.unmatched += self.fanout.offer(items)
        self.turn(now_s)
        return [item.event.id for item in items]

    def turn(self, now_s: float = 0.0) -> None:
        """One turn of the worker: collect, hand over."""
        self.outcomes |= {item.event.id: outcome for item, outcome in self.fanout.collect(now_s)}
        self.fanout.pump(now_s)

    def answer(self, name: str, outcome: Outcome = DELIVERED, *event_ids: int, now_s: float = 0.0) -> None:
        """A far side answers these, or all it holds."""
        self.far[name].answer(outcome, *event_ids)
        self.turn(now_s)

    def break_down(self, name: str, outcome: Outcome, now_s: float = 0.0) -> None:
        """Open a publisher's breaker."""
        for event_id in range(-10, -5):
            self.breakers[name].started(event_id)
            self.breakers[name].judge(event_id, outcome, now_s)


def _all(_event_type: str) -> bool:
    return True
