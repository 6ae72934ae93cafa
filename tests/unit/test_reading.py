"""How a worker reads the backlog of its partitions: all of it, none twice, and as far at once as it can take."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as some

from outboxd.publishers.route import Route
from outboxd.relay.meter import Meter
from outboxd.relay.reading import Reading
from outboxd.relay.room import Row
from outboxd.relay.rooms import Rooms
from outboxd.store.api import FRESH, ZERO
from tests.services.ordered_source import config_of

BATCH = 10
NUMBERS = range(8)
BUDGET_BYTES = 1 << 20


class Partitions:
    """What a store tells of fresh rows, from a list of ids; the row with an id is in partition id modulo 8."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = sorted(ids)
        self.windows = 0
        self.read: list[int] = []

    def window(self, numbers: Sequence[int], after: int, each: int) -> int:
        """As store.api.Partitions."""
        self.windows += 1
        found = [[one for one in self.ids if one > after and one % 8 == number][each - 1 : each] for number in numbers]
        return min((one for ids in found for one in ids), default=FRESH)

    def scan_new(self, numbers: Sequence[int], after: int, upto: int, limit: int, inline_bytes: int) -> list[Row]:
        """The same; as MySQL does it, one partition after the other."""
        found = [one for number in numbers for one in self.ids if after < one <= upto and one % 8 == number][:limit]
        self.read += found
        return [(one, "", "", f"r{one}", "app", b"x", "", None, 0, 0, "", None, "pending", FRESH, 1, one % 8, -1, -1)
                for one in found]  # fmt: skip

    def scan(self, floors: object, limit: int, inline_bytes: int, *, fresh: bool, due: bool) -> list[Row]:
        """Nothing is due."""
        assert due
        assert not fresh
        return []


def reading_of() -> Reading:
    """Of a worker that owns all of these partitions."""
    lane = config_of("sqlite:////nowhere", batch=BATCH).lanes["room_outbox"]
    routes: list[Route] = []
    reading = Reading(lane, Rooms(False), Meter(None, 0, lane.name, routes))
    reading.own(frozenset(NUMBERS), frozenset())
    reading._scans.begin(dict.fromkeys(NUMBERS, ZERO))
    return reading


def read_all(reading: Reading, partitions: Partitions) -> int:
    """Until there is nothing more; in how many steps."""
    steps = 0
    while reading.read_more(partitions, 0.0, BUDGET_BYTES):  # type: ignore[arg-type]  # what it needs of them
        steps += 1
        assert steps < 1000, "it does not come to an end"
        highest = max(partitions.ids, default=0)
        assert all(start <= highest for start in floors(reading)), "passed what nobody has written yet"
    return steps


def floors(reading: Reading) -> list[int]:
    """Up to which ids it has read."""
    return [floor.fresh_id for floor in reading._scans._floors.values()]


def test_how_far_to_read_is_asked_once_as_long_as_a_backlog_stays_as_dense_as_it_is() -> None:
    """The fast path: to ask the index costs half of what reading does."""
    partitions = Partitions([3 * one for one in range(1, 1001)])
    reading = reading_of()
    steps = read_all(reading, partitions)
    assert len(partitions.read) == len(set(partitions.read)) == 1000
    assert partitions.windows <= 3  # at the start, and where it ends
    assert steps <= 1000 / BATCH


def test_behind_a_gap_the_index_is_asked_again() -> None:
    """A million ids further on."""
    partitions = Partitions([*range(1, 201), *range(1_000_000, 1_000_200)])
    assert read_all(reading_of(), partitions) <= 60
    assert sorted(partitions.read) == partitions.ids


SPANS = some.lists(some.tuples(some.integers(1, 60), some.sampled_from([1, 2, 8, 100, 5000])), max_size=8)


@given(SPANS)
def test_all_of_a_backlog_is_read_however_unevenly_it_lies(spans: list[tuple[int, int]]) -> None:
    """Dense, thin, in one partition alone (every eighth id): all of it is known in the end."""
    ids, last = [], 0
    for count, step in spans:
        ids += [last + step * place for place in range(1, count + 1)]
        last = ids[-1]
    partitions = Partitions(ids)
    reading = reading_of()
    read_all(reading, partitions)
    assert reading._rooms.unknown(ids) == []
    partitions.ids += [last + 1]  # what comes then is new, and found as such
    reading._scans.look_everywhere(fresh=True, due=False)
    read_all(reading, partitions)
    assert reading._rooms.unknown([last + 1]) == []
