"""Dead letters: which are meant, what a change of them does, what is told of it. For command line and admin API."""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from outboxd.config.schema import Lane, PublisherSettings
from outboxd.errors import OutboxdError
from outboxd.explain import words
from outboxd.explain.search import document
from outboxd.explain.story import Scene, tell, wanted_by
from outboxd.store import desk
from outboxd.store.connection import Connection
from outboxd.store.desk import COUNT_CAP
from outboxd.store.desk_dead import DeadFilter, dead_count, dead_list
from outboxd.store.desk_find import Desk, Found, now_ms

USUAL_LIMIT = 50
"""Dead letters that are listed unless more are asked for."""
LOOKED_AT = 1000
"""Dead letters that are read to tell which publishers will be asked."""
BATCH = 500
"""Dead letters that one transaction changes."""


@dataclass(frozen=True, slots=True)
class Deed:
    """A change of dead letters: what would become of them, what has."""

    would: str
    did: str


REPLAY = Deed("would be published again", "pending again")
PURGE = Deed("would be deleted for good", "deleted")
SKIP = Deed("would be skipped, and their rooms go on", "skipped")


class NothingWaits(OutboxdError):
    """No room of the lane waits for a dead letter, so none can be skipped."""


class NoSuchEvent(OutboxdError):
    """There is no event of that id."""


class Ambiguous(OutboxdError):
    """Several tenants have an event of that id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for, as it was given."""

    lane: str | None
    event_id: str | None
    event_type: str | None
    room: str | None
    app: str | None
    since: words.When | None
    until: words.When | None
    error: str | None
    limit: int | None

    @property
    def is_all(self) -> bool:
        """Is nothing said of which ones are meant?"""
        chosen = (self.event_id, self.event_type, self.room, self.app, self.since, self.until, self.error)
        return all(value is None for value in chosen)

    def filter(
        self, connection: Connection, lane: Lane, *, dead_by_now: bool = False, unskipped: bool = False
    ) -> DeadFilter:
        """For the store. Durations count from the database's time. dead_by_now: nothing that dies from now on, so that
        what is changed in the end is what was counted; one event that is named needs no such bound.
        """
        now = now_ms(Desk(connection, lane))
        until_ms = self.until.epoch_ms(now) if self.until else None
        if dead_by_now and self.event_id is None:
            until_ms = now + 1 if until_ms is None else min(now + 1, until_ms)
        return DeadFilter(
            event_id=self.event_id,
            event_type=self.event_type,
            room=self.room,
            app=self.app,
            since_ms=self.since.epoch_ms(now) if self.since else None,
            until_ms=until_ms,
            error=self.error,
            limit=self.limit,
            unskipped=unskipped,
        )


@dataclass(frozen=True, slots=True)
class Matches:
    """Dead letters that a filter finds: how many (is_more: at least), and the newest of them."""

    chosen: DeadFilter
    count: int
    is_more: bool
    newest: list[Found]

    def __str__(self) -> str:
        return ("more than " if self.is_more else "") + words.counted(self.count, "dead letter")


def look(connection: Connection, lane: Lane, wanted: Wanted, deed: Deed) -> Matches:
    """What stands there now, for a change of it: that what the deed would change."""
    chosen = wanted.filter(connection, lane, dead_by_now=True, unskipped=deed is SKIP)
    count, is_more = dead_count(connection, lane, chosen)
    newest = dead_list(connection, lane, chosen, LOOKED_AT)
    # Among very many dead letters the count may not have come to those that match.
    return Matches(chosen, max(count, len(newest)), is_more, newest)


def total(
    connection: Connection, lane: Lane, chosen: DeadFilter, newest: Sequence[Found], look_at: int = COUNT_CAP
) -> tuple[int, bool]:
    """(how many the filter finds without its limit, is that a lower bound). newest: those that are listed."""
    count, is_more = dead_count(connection, lane, replace(chosen, limit=None), look_at)
    return max(count, len(newest)), is_more


def check_blocks(lane: Lane) -> None:
    """Do rooms of the lane wait for dead letters? Raises NothingWaits."""
    if not lane.is_ordered:
        raise NothingWaits(
            f"{lane.name} is not ordered: nothing waits for its dead letters, so there is nothing to skip. Replay or "
            "purge them; ordering: room with on_dead: block makes rooms wait"
        )
    if not lane.blocks_on_dead:
        raise NothingWaits(
            f"rooms of {lane.name} go on behind a dead letter by themselves (on_dead: continue): there is nothing to "
            "skip. Replay or purge it; on_dead: block makes rooms wait"
        )


# what is told


def nothing(connection: Connection, lane: Lane, found: Matches) -> str:
    """No dead letter matches; where the one event is instead that was named."""
    text, event_id = f"no dead letter in {lane.name} matches", found.chosen.event_id
    if event_id is None:
        return text
    states = [event.status for event in desk.find(connection, lane, event_id, found.chosen.app)]
    return text + (f": event {event_id} is {', '.join(states)}" if states else f": there is no event {event_id}")


def skipped_before(connection: Connection, lane: Lane, found: Matches) -> str:
    """Where nothing is left to be skipped: that what was meant is skipped already; "" where that is not why."""
    if found.count or not found.chosen.unskipped:
        return ""
    count, is_more = dead_count(connection, lane, replace(found.chosen, unskipped=False))
    those = Matches(found.chosen, count, is_more, [])
    return f"already skipped: {those} of {lane.name}; nothing was changed" if count else ""


def notes(found: Matches, publishers: Mapping[str, PublisherSettings] | None, to_all: bool = False) -> list[str]:
    """What to know before it is done. publishers: of the lane, where they will be asked."""
    told = [_who_is_asked(found, publishers, to_all)] if publishers is not None else []
    apps = [event.app_code or "''" for event in found.newest]
    if found.chosen.event_id is None or len(apps) < 2:
        return told
    name = found.chosen.event_id
    return [f"{len(apps)} events have the id {name}, of the app codes {', '.join(apps)}; --app chooses one", *told]


def _who_is_asked(found: Matches, publishers: Mapping[str, PublisherSettings], to_all: bool) -> str:
    """Which publishers a replay will ask, and who is left out."""
    asked: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for event in found.newest:
        accepted = [] if to_all else event.published_to.split(",")
        for name in wanted_by(event.event_type, publishers):
            (left_out if name in accepted else asked)[name] += 1
    text = f"asked will be: {_listed(asked) or 'nobody'}"
    text += f"; not asked again, since they accepted: {_listed(left_out)}" if left_out else ""
    return text + (f" (of the newest {len(found.newest):,})" if found.count > len(found.newest) else "")


def _listed(numbers: Counter[str]) -> str:
    return ", ".join(f"{name} ({number:,})" for name, number in numbers.items())


def would(deed: Deed, found: Matches, lane: Lane) -> str:
    """What would be done."""
    return f"{found} of {lane.name} {deed.would}"


def did(deed: Deed, done: int, lane: Lane) -> str:
    """What was done."""
    return f"{words.counted(done, 'dead letter')} of {lane.name} {deed.did}"


# documents for programs


def listed(lane: Lane, events: Sequence[Found], count: int | None, is_more: bool) -> dict[str, object]:
    """A list of dead letters."""
    rows = [_row(event) for event in events]
    return {"lane": lane.name, "count": count, "count_is_lower_bound": is_more, "events": rows}


def _row(event: Found) -> dict[str, object]:
    row = asdict(event)
    for name in ("now_ms", "due_at_ms", "status"):
        del row[name]
    return row | {"died_at_ms": event.updated_at_ms, "skipped": event.is_skipped}


def shown(lane: Lane, scenes: Sequence[Scene], payloads: Sequence[bytes | None]) -> dict[str, object]:
    """Dead letters with their stories and payloads; None: one that is not shown."""
    pairs = zip(scenes, payloads, strict=True)
    events = [document(scene, tell(scene)) | _payload(payload) for scene, payload in pairs]
    return {"lane": lane.name, "events": events}


def _payload(payload: bytes | None) -> dict[str, object]:
    if payload is None:
        return {"envelope": None}
    try:
        return {"envelope": payload.decode()}
    except UnicodeDecodeError:
        return {"envelope_base64": base64.b64encode(payload).decode()}


def changed(lane: Lane, found: Matches, done: int) -> dict[str, object]:
    """What a change came to."""
    more = {"matched": found.count, "matched_is_lower_bound": found.is_more}
    return {"lane": lane.name, **more, "done": done}


# one event that is to die


def the_one(connection: Connection, lane: Lane, event_id: str, app: str | None) -> Found:
    """The event of that id. Raises NoSuchEvent or Ambiguous."""
    found = desk.find(connection, lane, event_id, app)
    if not found:
        raise NoSuchEvent(f"there is no event {event_id} in {lane.name}" + (f" with app code {app!r}" if app else ""))
    if len(found) > 1:
        apps = ", ".join(event.app_code or "''" for event in found)
        raise Ambiguous(f"{len(found)} events of {lane.name} have the id {event_id}: say --app with one of {apps}")
    return found[0]


def named(lane: Lane, event: Found) -> str:
    """Which event it is."""
    return f"event {event.event_id} of {lane.name} ({event.event_type}, app {event.app_code or 'none'})"


def would_kill(lane: Lane, event: Found) -> str:
    """What would be done."""
    return f"{named(lane, event)} is {event.status}" + (
        " and would be killed" if event.status in desk.UNPUBLISHED else ""
    )


def killed(lane: Lane, event: Found, result: desk.Killed) -> str:
    """What was done, or why nothing."""
    if not result.done:
        return f"{named(lane, event)} is {result.before} already: nothing was changed"
    busy = f"; {result.worker_id} was publishing it, which may still arrive" if result.worker_id else ""
    return f"{named(lane, event)} is a dead letter now{busy}"


def killed_document(lane: Lane, event: Found, result: desk.Killed) -> dict[str, object]:
    """The same for programs."""
    return {
        "lane": lane.name,
        "event_id": event.event_id,
        "app_code": event.app_code,
        "id": event.id,
        "killed": result.done,
        "before": result.before,
        "worker_id": result.worker_id,
    }
