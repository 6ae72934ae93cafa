"""What the service is told, by its environment; and the places at which a test may kill it."""

import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from room_service.domain import DAY_MS, Rules


class Misconfigured(ValueError):
    """A variable that cannot be used. Its text names it."""


@dataclass(frozen=True, slots=True)
class Tencent:
    """Where and as whom the service itself sends to Tencent IM, if it publishes at once."""

    url: str
    sdk_app_id: int
    secret_key: str
    identifier: str = "administrator"


@dataclass(frozen=True, slots=True)
class Settings:
    """One node. node: its name. url: where the other nodes and clients reach it. held_ms: a debit that has been held
    for so long is looked into. activity_url, tencent: published to by the service itself, after the commit; neither:
    the relay does it all.
    """

    node: str
    url: str
    database_url: str
    redis_url: str
    app_code: str = "hyapp"
    lease_ms: int = 10_000
    snapshot_every: int = 20
    rules: Rules = field(default_factory=Rules)
    held_ms: int = 10_000
    publish_timeout_s: float = 3.0
    activity_url: str = ""
    tencent: Tencent | None = None

    @property
    def publishes_now(self) -> bool:
        """Does the service publish by itself?"""
        return bool(self.activity_url or self.tencent)


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Of ROOM_NODE, ROOM_URL (http://host:port), ROOM_DATABASE_URL and ROOM_REDIS_URL, which must be there; all others
    have defaults. Raises Misconfigured.
    """
    text = {name: environ.get(f"ROOM_{name}", "") for name in ("NODE", "URL", "DATABASE_URL", "REDIS_URL")}
    if missing := [f"ROOM_{name}" for name, value in text.items() if not value]:
        raise Misconfigured(f"not set: {', '.join(missing)}")
    return Settings(
        node=text["NODE"],
        url=text["URL"],
        database_url=text["DATABASE_URL"],
        redis_url=text["REDIS_URL"],
        app_code=environ.get("ROOM_APP_CODE", "hyapp"),
        lease_ms=_number(environ, "ROOM_LEASE_MS", 10_000, 500),
        snapshot_every=_number(environ, "ROOM_SNAPSHOT_EVERY", 20, 1),
        rules=Rules(
            rocket_delay_ms=_number(environ, "ROOM_ROCKET_DELAY_MS", 10_000, 0),
            reset_offset_ms=_number(environ, "ROOM_RESET_OFFSET_MS", 0, 0) % DAY_MS,
        ),
        held_ms=_number(environ, "ROOM_HELD_MS", 10_000, 1),
        publish_timeout_s=_number(environ, "ROOM_PUBLISH_TIMEOUT_MS", 3_000, 10) / 1000,
        activity_url=environ.get("ROOM_ACTIVITY_URL", ""),
        tencent=_tencent(environ),
    )


def _tencent(environ: Mapping[str, str]) -> Tencent | None:
    url = environ.get("ROOM_TENCENT_URL", "")
    if not url:
        return None
    key = environ.get("ROOM_TENCENT_KEY", "")
    if not key:
        raise Misconfigured("ROOM_TENCENT_URL is set, and ROOM_TENCENT_KEY is not")
    return Tencent(url, _number(environ, "ROOM_TENCENT_APP", 0, 1), key)


def _number(environ: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = environ.get(name, "")
    if not text:
        if default >= least:
            return default
        raise Misconfigured(f"{name} is not set")
    if not text.isdecimal() or int(text) < least:
        raise Misconfigured(f"{name} is {text!r}: give a whole number, {least} or more")
    return int(text)


FAILPOINTS = (
    "begun", "after_idempotency", "after_lease", "after_epoch", "after_settling", "after_mutate", "after_debit",
    "after_room_row", "after_command_log", "before_commit", "after_commit", "after_snapshot", "after_swap",
    "after_projection", "after_spending", "after_ring", "after_publish",
)  # fmt: skip
"""Between any two steps of the write chain, in its order. ROOM_FAILPOINT=send_gift:after_debit kills the process there,
by SIGKILL; send_gift:after_debit:stop freezes it by SIGSTOP, the first time only. after_epoch and after_settling lie
within a take-over, which comes with a room's first command on a node."""

_stopped = False


def failpoint(place: str, command: str) -> None:
    """Nothing, unless a test wants the process to end here."""
    global _stopped
    wanted = os.environ.get("ROOM_FAILPOINT", "")
    if not wanted:
        return
    assert place in FAILPOINTS, place
    if wanted == f"{command}:{place}":
        os.kill(os.getpid(), signal.SIGKILL)
    if wanted == f"{command}:{place}:stop" and not _stopped:
        _stopped = True
        # To this thread: one to the process lets the others run on for a moment, of which this is one.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
