"""Rockets: a wake-up comes when one is to be launched, and the room decides whether it is.

Wake-ups come at least once, and to any node. Whoever gets one brings it to the room's owner; what was done with a
command_id before is not done again.
"""

import threading

import requests

from outboxd.errors import SubscriptionError
from outboxd.wakeups import Taken, Wakeup
from outboxd.wakeups.redis import RedisWakeups
from room_service.cell import Rooms
from room_service.domain import LaunchRocket, NotYet, Refused
from room_service.lease import OwnedElsewhere
from room_service.timing import log

WAIT_S = 0.5
LEASE_S = 3.0
"""A wake-up that could not be brought to its room comes again after this."""
TIMEOUT_S = 2.0


def serve_wakeups(rooms: Rooms, ending: threading.Event) -> None:
    """Until the node ends."""
    settings = rooms.settings
    while not ending.is_set():
        try:
            with RedisWakeups(settings.redis_url, lease_s=LEASE_S) as wakeups:
                while not ending.is_set():
                    for taken in wakeups.receive(WAIT_S):
                        if _handle(rooms, taken):
                            wakeups.done(taken)
        except SubscriptionError as error:
            log("wakeups_unavailable", settings.node, error=str(error))
            ending.wait(1.0)


def _handle(rooms: Rooms, taken: Taken) -> bool:
    """Is it over with this wake-up?"""
    wakeup = taken.wakeup
    if wakeup.app_code != rooms.settings.app_code:
        return False  # another service's, on the same key by mistake: it is not ours to take away
    try:
        what = _launch(rooms, wakeup)
    except Exception as error:  # noqa: BLE001  of the database, of Redis, of another node: it comes again
        log("rocket_waits", rooms.settings.node, command_id=wakeup.command_id, error=str(error))
        return False
    log("rocket_woken", rooms.settings.node, command_id=wakeup.command_id, room_id=wakeup.room_id, outcome=what)
    return True


def _launch(rooms: Rooms, wakeup: Wakeup) -> str:
    """What came of it: launched, or why it was not."""
    command = LaunchRocket(wakeup.rocket_id, wakeup.level, wakeup.launch_at_ms)
    try:
        rooms.execute(wakeup.room_id, command, wakeup.command_id)
    except NotYet:  # our clock is behind that of Redis
        raise
    except Refused as refusal:
        return str(refusal)
    except OwnedElsewhere as owner:
        return _ask(owner.url, wakeup)
    return "launched"


def _ask(url: str, wakeup: Wakeup) -> str:
    """Bring it to the node that owns the room. Raises what makes it worth another try."""
    fields = {
        "command_id": wakeup.command_id, "rocket_id": wakeup.rocket_id, "level": wakeup.level,
        "launch_at_ms": wakeup.launch_at_ms,
    }  # fmt: skip
    answer = requests.post(f"{url}/rooms/{wakeup.room_id}/launch_rocket", json=fields, timeout=TIMEOUT_S)
    if answer.status_code == 409 and "launches in" not in answer.text:
        return str(answer.json()["error"])
    answer.raise_for_status()
    return "launched"
