"""The fan-out of an ordered lane: of each room one after the other, nothing behind a failure, nothing forgotten."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as some

from outboxd.event import CONNECT, DELIVERED, REJECTED, SERVER_ERROR, Dead, Delivered, Outcome, Retry
from outboxd.publishers.ordered_fanout import BEHIND, OrderedFanout
from outboxd.publishers.route import Item
from tests.services.publishing import make_event
from tests.unit.fanned import LEASE_S, TIMEOUT_S, Fanned, FarSide

FAULT = Retry(SERVER_ERROR, "HTTP 500")
AWAY = Retry(CONNECT, "refused", counted=False)
REFUSED = Dead(REJECTED, "HTTP 422")


class Chained(FarSide):
    """Takes several events of a room, and lets none arrive behind one that failed."""

    chains = True


class Scripted:
    """An ordered fan-out over far sides that the test answers; what came out of it, in its order."""

    def __init__(self, names: str = "a", chains: bool = False, blocks: bool = False, capacity: int = 1000) -> None:
        self.fanned = Fanned(*names, capacity=capacity)
        if chains:
            for route in self.fanned.routes.values():
                route.publisher = self.fanned.far[route.name] = Chained(capacity)
        self.fanout = OrderedFanout(list(self.fanned.routes.values()), TIMEOUT_S, blocks)
        self.offered: list[int] = []
        self.out: list[tuple[int, Outcome]] = []
        self.taken: list[int] = []
        self.room: dict[int, str] = {}

    def offer(self, *rooms: str) -> list[int]:
        """Events go in, and as far as they may."""
        items = [Item(make_event(room_id=room), 7, LEASE_S) for room in rooms]
        self.room |= {item.event.id: item.event.room_id for item in items}
        self.offered += [item.event.id for item in items]
        self.fanout.offer(items)
        self.turn()
        return [item.event.id for item in items]

    def turn(self) -> None:
        """Collect, hand over."""
        self.out += [(item.event.id, outcome) for item, outcome in self.fanout.collect(0.0)]
        self.fanout.pump(0.0)

    def answer(self, outcome: Outcome = DELIVERED, *ids: int, name: str = "a") -> None:
        """A far side answers."""
        self.fanned.far[name].answer(outcome, *ids)
        self.turn()

    def held(self, name: str = "a") -> list[int]:
        """What a far side has, in its order."""
        return list(self.fanned.far[name].held)

    def take_back(self, *keep: int) -> None:
        """Some leave; without keep all do."""
        taken = self.fanout.take_back((lambda item: item.event.id in keep) if keep else None)
        self.taken += [item.event.id for item in taken]
        self.turn()

    def finish(self) -> None:
        """All that is out is accepted, until nothing is left."""
        while any(far.held for far in self.fanned.far.values()) or self.fanout.queued:
            before = len(self.out)
            for name in self.fanned.far:
                self.answer(name=name)
            assert len(self.out) > before or any(far.held for far in self.fanned.far.values()), "it does not go on"
        self.turn()

    def check(self) -> None:
        """Everything came out once; of each room successes ascend."""
        ends = [event_id for event_id, _ in self.out] + self.taken
        assert sorted(ends) == sorted(self.offered)
        assert self.fanout.queued == 0
        assert not self.fanout._lines
        rooms: dict[str, list[int]] = defaultdict(list)
        for event_id, outcome in self.out:
            if isinstance(outcome, Delivered) and self.room[event_id]:
                rooms[self.room[event_id]].append(event_id)
        for ids in rooms.values():
            assert ids == sorted(ids)


def test_each_event_of_a_room_waits_for_the_one_before_it() -> None:
    """Order."""
    scripted = Scripted()
    first, second, other, free = scripted.offer("r", "r", "s", "")
    assert scripted.held() == [first, other, free]
    assert scripted.fanout.queued == 1
    scripted.answer(DELIVERED, first)
    assert scripted.held() == [other, free, second]
    scripted.finish()
    scripted.check()


@pytest.mark.parametrize("chains", [False, True])
@pytest.mark.parametrize("outcome", [FAULT, AWAY], ids=["fault", "away"])
def test_nothing_is_published_behind_a_failure(chains: bool, outcome: Outcome) -> None:
    """Order: those behind it are given back, and blamed for nothing."""
    scripted = Scripted(chains=chains, capacity=2)
    first, *behind = scripted.offer("r", "r", "r", "r")
    scripted.answer(outcome, first)
    if chains:
        scripted.answer(outcome, behind[0])
    assert scripted.out[0] == (first, outcome)
    assert dict(scripted.out[1:]) == dict.fromkeys(behind, BEHIND)
    scripted.check()


def test_a_success_behind_a_failure_ends_the_rooms_turn_too() -> None:
    """G1: a chain whose second event was accepted all the same; what was offered meanwhile is given back."""
    scripted = Scripted(chains=True)
    first, second = scripted.offer("r", "r")
    scripted.answer(FAULT, first)
    (third,) = scripted.offer("r")
    scripted.answer(DELIVERED, second)
    assert scripted.out == [(first, FAULT), (second, DELIVERED), (third, BEHIND)]
    scripted.check()


@pytest.mark.parametrize("blocks", [False, True])
def test_a_dead_letter_lets_its_followers_go_on_unless_it_blocks(blocks: bool) -> None:
    """G7."""
    scripted = Scripted(blocks=blocks)
    first, second = scripted.offer("r", "r")
    scripted.answer(REFUSED, first)
    assert scripted.held() == ([] if blocks else [second])
    scripted.finish()
    scripted.check()
    assert scripted.out[1] == (second, BEHIND if blocks else DELIVERED)


@pytest.mark.parametrize("chains", [False, True])
def test_what_is_behind_an_event_that_was_lost_is_given_back(chains: bool) -> None:
    """Order: a lease that was lost in the middle of a room; its followers, whose leases hold, must not go past it."""
    scripted = Scripted(chains=chains, capacity=1)
    first, lost, behind = scripted.offer("r", "r", "r")
    scripted.take_back(first, behind)
    scripted.finish()
    assert scripted.taken == [lost]
    assert dict(scripted.out) == {behind: BEHIND, first: DELIVERED}
    scripted.check()


def test_with_several_publishers_an_event_is_done_with_before_the_next_one_starts() -> None:
    """Order at each of them."""
    scripted = Scripted("ab")
    first, second = scripted.offer("r", "r")
    scripted.answer(name="a")
    assert (scripted.held("a"), scripted.held("b")) == ([], [first])
    scripted.answer(name="b")
    assert (scripted.held("a"), scripted.held("b")) == ([second], [second])
    scripted.answer(FAULT, name="b")
    third, *_ = scripted.offer("r")
    assert scripted.held("a") == [second]
    scripted.answer(name="a")
    assert scripted.out[2:] == [(third, BEHIND)] or (third, BEHIND) in scripted.out
    scripted.check()


STEPS = some.lists(
    some.one_of(
        some.tuples(some.just("offer"), some.lists(some.sampled_from(["", "r", "s", "t"]), min_size=1, max_size=6)),
        some.tuples(some.sampled_from(["a", "b"]), some.sampled_from([DELIVERED, DELIVERED, FAULT, AWAY, REFUSED])),
        some.tuples(some.just("lose"), some.integers(0, 5)),
    ),
    max_size=40,
)


@given(STEPS, some.booleans(), some.booleans(), some.sampled_from(["a", "ab"]), some.integers(1, 4), some.booleans())
def test_whatever_happens_rooms_keep_their_order_and_nothing_is_forgotten(
    steps: list[tuple[str, object]], chains: bool, blocks: bool, names: str, capacity: int, is_draining: bool
) -> None:
    """Order, G1: offers, answers of every kind, leases lost in the middle, a drain."""
    scripted = Scripted(names, chains and names == "a", blocks, capacity)
    done: set[int] = set()
    for what, value in steps:
        if isinstance(value, list):
            scripted.offer(*value)
        elif isinstance(value, int):
            done = {event_id for event_id, _ in scripted.out} | set(scripted.taken)
            left = [event_id for event_id in scripted.offered if event_id not in done]
            scripted.take_back(*(event_id for place, event_id in enumerate(left) if place % 6 != value), -1)
        elif what in names and (held := scripted.held(what)):
            failed = not isinstance(value, Delivered)
            room = scripted.room[held[0]]
            chain = [one for one in held if scripted.room[one] == room and room] if chains and failed else []
            assert isinstance(value, Delivered | Retry | Dead)
            scripted.answer(value, *(chain or held[:1]), name=what)
    if is_draining:
        scripted.take_back()
    scripted.finish()
    scripted.check()
