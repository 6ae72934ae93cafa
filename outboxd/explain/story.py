"""One event's story in plain words: where it is, why it is not delivered, what can be done. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from outboxd.config.schema import EXPONENTIAL, Lane, PublisherSettings
from outboxd.explain import room, words
from outboxd.explain.verdict import CONFIGURATION, EVENT, OPERATOR, RECEIVER, WORKER, Verdict, verdict
from outboxd.publishers.filters import wants
from outboxd.store.api import FRESH
from outboxd.store.desk_find import Found
from outboxd.store.desk_look import LOOK_CAP, Around
from outboxd.store.desk_room import Room

WAITING, DELAYED, PUBLISHING, LEASE_OVER = "waiting", "delayed", "publishing", "lease_over"
RETRYING, PARKED, MISCONFIGURED, DELIVERED, DEAD = "retrying", "parked", "misconfigured", "delivered", "dead"
STATES = (WAITING, DELAYED, PUBLISHING, LEASE_OVER, RETRYING, PARKED, MISCONFIGURED, DELIVERED, DEAD)
"""Where an event can be."""

LONG_SILENCE_POLLS = 5
"""After so many poll intervals in which nobody took it, it is said that no worker seems to run."""

_BLAMED = {
    EVENT: "This is blamed on the event: it uses up an attempt, unless nothing else gets through either.",
    RECEIVER: "This is blamed on the receiver: it uses up none of the event's attempts.",
    CONFIGURATION: "This is a matter of configuration: the event is held, never given up, and no attempt is used up.",
    WORKER: "This is blamed on no receiver.",
    OPERATOR: "A person did this.",
}
_UNCOUNTED = "No attempt was used: this is blamed on the receiver or its configuration."


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """state: one of STATES. headline: one sentence. details, todo: more of them. blame: of verdict.py, None where
    nothing failed. accepted, refused, asked: publishers that are done with the event, and those yet to be asked.
    """

    state: str
    headline: str
    details: tuple[str, ...] = ()
    todo: tuple[str, ...] = ()
    blame: str | None = None
    accepted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """What a story is told from. publishers: the lane's, in order. room: of an event that waits in an ordered lane."""

    event: Found
    lane: Lane
    around: Around
    publishers: Mapping[str, PublisherSettings]
    room: Room | str | None = None

    @property
    def marks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(who accepted it, who refused it), as the row remembers."""
        names = [name.strip() for name in self.event.published_to.split(",") if name.strip()]
        return tuple(n for n in names if not n.startswith("!")), tuple(n[1:] for n in names if n.startswith("!"))

    @property
    def asked(self) -> tuple[str, ...]:
        """Publishers that want such events and are not done with this one."""
        done = {name for names in self.marks for name in names}
        return tuple(n for n in wanted_by(self.event.event_type, self.publishers) if n not in done)

    @property
    def verdict(self) -> Verdict | None:
        """What its last error says. While nothing was counted, it was not blamed on the event, whatever it says."""
        if not self.event.last_error:
            return None
        found = verdict(self.event.last_error, dict(self.publishers))
        return replace(found, blame=RECEIVER) if self.is_uncounted and found.blame == EVENT else found

    @property
    def is_uncounted(self) -> bool:
        """Has nothing of what failed used up an attempt?"""
        return self.event.status == "retryable" and not self.event.retry_count


def wanted_by(event_type: str, publishers: Mapping[str, PublisherSettings]) -> tuple[str, ...]:
    """The publishers whose filter lets such events through."""
    return tuple(name for name, settings in publishers.items() if wants(settings.events)(event_type))


def tell(scene: Scene) -> Story:
    """The story of an event."""
    accepted, refused = scene.marks
    state, headline, details, todo = _TELLERS[scene.event.status](scene)
    found = scene.verdict
    is_over = state in (DELIVERED, DEAD)
    return Story(
        state=state,
        headline=headline,
        details=tuple(details),
        todo=tuple(todo),
        blame=found.blame if found and state != DELIVERED else None,
        accepted=accepted,
        refused=refused,
        asked=() if is_over else scene.asked,
    )


Told = tuple[str, str, list[str], list[str]]


def _pending(scene: Scene) -> Told:
    event = scene.event
    if event.due_at_ms != FRESH and event.due_at_ms > event.now_ms:
        until = f"{words.moment(event.due_at_ms)}, in {words.lasting(event.due_at_ms - event.now_ms)}"
        return DELAYED, f"it is delayed until {until}: its producer wanted it so", [*_rest(scene)], _unblock(scene)
    if event.last_error:
        headline = "it was a dead letter and is pending again, since it was replayed"
    else:
        since = f" for {words.lasting(event.now_ms - event.created_at_ms)}" if event.created_at_ms else ""
        headline = f"it waits{since} to be published for the first time"
    details = [*_queue(scene), *_rest(scene)]
    if event.last_error:
        details.append(f"what it died of before: {event.last_error}")
    return WAITING, *_behind(scene, headline, details, _unblock(scene))


def _delivering(scene: Scene) -> Told:
    event = scene.event
    left_ms = event.lock_until_ms - event.now_ms
    if left_ms > 0:
        lease = f"the lease lasts {words.lasting(left_ms)} more and is renewed while the worker lives"
        return PUBLISHING, f"it is being published by {event.worker_id}", [lease, *_before(scene), *_rest(scene)], []
    headline = f"its lease ran out {words.lasting(-left_ms)} ago: {event.worker_id} died or hangs"
    details = [
        "a worker will publish it alone, with nothing else in flight, and the lost attempt counts",
        *_attempts(scene),
        *_rest(scene),
    ]
    return LEASE_OVER, headline, details, _unblock(scene)


def _retryable(scene: Scene) -> Told:
    event, found = scene.event, scene.verdict
    wait_ms = event.due_at_ms - event.now_ms if event.due_at_ms != FRESH else 0
    due = f"in {words.lasting(wait_ms)} ({words.moment(event.due_at_ms)})"
    if wait_ms <= 0:
        due = "as soon as a worker is free"
        due += ", or at the publisher's next probe, while it is failing" if found and found.publisher else ""
    if found is None:  # its worker was lost, or it was given back
        details = [*_attempts(scene), *_rest(scene)]
        return RETRYING, *_behind(scene, f"it will be tried again {due}", details, _unblock(scene))
    blamed = _UNCOUNTED if scene.is_uncounted and found.blame == RECEIVER and not found.parked else _BLAMED[found.blame]
    details = [f"last error: {event.last_error}", f"{found.says}. {blamed}"]
    todo = [found.todo] if found.todo else []
    if found.parked and found.publisher:
        sooner = ", or sooner if that publisher recovers" if wait_ms > 0 else ""
        state, headline = PARKED, f"it is parked, since {found.says}; next try {due}{sooner}"
        details = [f"last error: {event.last_error}", _BLAMED[found.blame]]
    elif found.blame == CONFIGURATION:
        state, headline = MISCONFIGURED, f"it is held until the configuration is put right; next try {due}"
    else:
        state, headline = RETRYING, f"publishing it failed; next try {due}"
    if wait_ms <= 0:
        details += _queue(scene)
    details += [*_attempts(scene), *_rest(scene)]
    return state, *_behind(scene, headline, details, todo + _unblock(scene))


def _behind(scene: Scene, headline: str, details: list[str], todo: list[str]) -> tuple[str, list[str], list[str]]:
    """What it waits for in its room comes before all else."""
    waits_for, todo = room.waits_for(scene.room), room.decide(scene.lane, scene.room) + todo
    return waits_for or headline, [*([headline] if waits_for else []), *room.details(scene.room), *details], todo


def _delivered(scene: Scene) -> Told:
    event = scene.event
    took = ""
    if event.created_at_ms and event.delivered_at_ms >= event.created_at_ms:
        took = f", {words.lasting(event.delivered_at_ms - event.created_at_ms)} after it was created"
    headline = f"it was delivered at {words.moment(event.delivered_at_ms)}{took}"
    accepted, _ = scene.marks
    wanted = wanted_by(event.event_type, scene.publishers)
    if accepted:
        to = f"accepted by {', '.join(accepted)}"
    elif wanted:
        to = f"accepted by every publisher that the lane had for it then (today: {', '.join(wanted)})"
    else:
        to = f"no publisher of the lane wants {event.event_type}, so it was sent to nobody"
    counted = [f"{words.counted(event.retry_count, 'attempt')} failed before"] if event.retry_count else []
    return DELIVERED, headline, [to, *counted], []


def _failed(scene: Scene) -> Told:
    event, found = scene.event, scene.verdict
    ago = words.lasting(event.now_ms - event.updated_at_ms)
    headline = f"it is a dead letter since {words.moment(event.updated_at_ms)} ({ago} ago)"
    details = [f"reason: {event.last_error or 'none was written'}"]
    todo: list[str] = []
    if found is not None:
        details.append(found.says)
        todo += [found.todo] if found.todo else []
        if found.blame == EVENT and not found.is_final and event.retry_count >= scene.lane.max_retry_count:
            details.append(f"that was attempt {event.retry_count}, and max_retry_count is {scene.lane.max_retry_count}")
    accepted, refused = scene.marks
    details += [f"accepted by {', '.join(accepted)}: not asked again at a replay"] if accepted else []
    details += [f"refused by {', '.join(refused)}"] if refused else []
    if found is not None and found.is_invalid:
        todo.append(f"not before that, since it would die again: `{room.command(scene.lane, event, 'replay')}`")
        todo.append(f"or delete it for good: `{room.command(scene.lane, event, 'purge')}`")
    else:
        todo.append(f"publish it again: `{room.command(scene.lane, event, 'replay')}`")
    says, more = room.held_up(scene.lane, event)
    return DEAD, headline, details + says, todo + more


def _queue(scene: Scene) -> Iterator[str]:
    """Who is before it, and does anybody work on this lane?"""
    around, event, lane = scene.around, scene.event, scene.lane
    if room.is_stuck(scene.room):
        return
    if around.ahead:
        more = "+" if around.ahead >= LOOK_CAP else ""
        yield f"{around.ahead:,}{more} {'event is' if around.ahead == 1 else 'events are'} before it"
    if around.paused or not lane.enabled:
        return
    if around.last_failure:
        failed = verdict(around.last_failure, dict(scene.publishers))
        ago = words.lasting(event.now_ms - around.last_failure_ms)
        why = f"{failed.says}; the publisher may be resting" if failed.blame == RECEIVER else failed.says
        yield f"the last failure of another event in this lane, {ago} ago: {around.last_failure} ({why})"
    if around.holders:
        held = ((worker, words.counted(count, "event")) for worker, count in sorted(around.holders.items()))
        yield f"workers at work in this lane: {', '.join(f'{worker} ({events})' for worker, events in held)}"
    else:
        yield _silence(scene)


def _silence(scene: Scene) -> str:
    """Nobody holds anything: does somebody look at all?"""
    around, event = scene.around, scene.event
    text = "no worker holds an event of this lane right now"
    sign_ms = max(around.last_delivery_ms, around.last_failure_ms)
    since_ms = max(event.created_at_ms, event.updated_at_ms, event.next_retry_at_ms, sign_ms)
    if since_ms and event.now_ms - since_ms > LONG_SILENCE_POLLS * scene.lane.poll_interval_s * 1000:
        text += ": is the daemon running, and does it reach the database?"
    if around.last_delivery_ms:
        ago = words.lasting(event.now_ms - around.last_delivery_ms)
        text += f" (the newest delivered event was delivered {ago} ago)"
    return text


def _before(scene: Scene) -> Iterator[str]:
    if scene.event.last_error:
        yield f"its last attempt failed: {scene.event.last_error}"


def _attempts(scene: Scene) -> Iterator[str]:
    used, lane, found = scene.event.retry_count, scene.lane, scene.verdict
    if not used and found is not None and found.blame in (RECEIVER, CONFIGURATION):
        return
    if lane.retry_strategy == EXPONENTIAL:
        most = words.counted(lane.max_retry_count, "attempt")
        yield f"{used} of {most} used up; at {lane.max_retry_count} it becomes a dead letter"
    else:
        yield f"{words.counted(used, 'attempt')} failed; it is tried every {lane.poll_interval_s:g} s for ever"


def _rest(scene: Scene) -> Iterator[str]:
    """Who has it already, who is still to get it."""
    accepted, refused = scene.marks
    if accepted:
        yield f"accepted already by {', '.join(accepted)}"
    if refused:
        yield f"refused by {', '.join(refused)}; it becomes a dead letter when the others are done"
    if scene.asked:
        yield f"goes to {', '.join(scene.asked)}"
    elif not accepted and not refused:
        yield f"no publisher of the lane wants {scene.event.event_type}: it will be marked delivered and sent to nobody"


def _unblock(scene: Scene) -> list[str]:
    """What keeps the whole lane from going on."""
    lane, around = scene.lane, scene.around
    todo = []
    if around.paused:
        todo.append(f"the lane is paused by {around.paused_by}: `outboxd resume {lane.name}`")
    if not lane.enabled:
        todo.append(f"the lane is not enabled in this configuration: set `lanes.{lane.name}.enabled`")
    return todo


_TELLERS = {
    "pending": _pending,
    "delivering": _delivering,
    "retryable": _retryable,
    "delivered": _delivered,
    "failed": _failed,
}
