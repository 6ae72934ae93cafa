"""All of it, on this machine, for half a minute: two nodes of the service, two of outboxd, a server that speaks Tencent
IM, and clients. `make example` from a checkout, whose tests have that server and know how to start the others.

MariaDB and Redis are started from the programs of this machine, or are those that EXAMPLE_MYSQL_URL (a server; a
database of its own is made there) and EXAMPLE_REDIS_URL (an empty database) name. Exit status 0 if every room is what
its delivered events make of it.
"""

import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from redis import Redis

from outboxd.envelope import Envelope
from outboxd.wakeups.redis import KEY
from room_service import audit
from room_service.database import Database
from room_service.load import Load, run
from tests.services.cli import Cli
from tests.services.daemon import Daemon
from tests.services.find import program
from tests.services.mariadb import execute, start_mariadb
from tests.services.redis_server import RedisServer
from tests.services.room_service import CONFIG, query, relay_environ, services, stream_events
from tests.services.tencent import TencentServer

SECONDS = 8.0
ROOMS = [f"room-{number}" for number in range(8)]
SHOWN = ROOMS[0]
ENDS_S = 40.0
APP, SECRET = 1400000001, "the-key-of-the-example"
NODES, RELAYS = ("room-a", "room-b"), ("relay-a", "relay-b")


def say(text: str = "") -> None:
    """A line for people, at once."""
    print(text, flush=True)


def missing() -> list[str]:
    """What is not here, and what to do about it."""
    found = []
    if not os.environ.get("EXAMPLE_MYSQL_URL") and not program("mariadbd", "mysqld"):
        found.append("MariaDB: install mariadb-server-core, or set EXAMPLE_MYSQL_URL=mysql://root@127.0.0.1:3306")
    if not os.environ.get("EXAMPLE_REDIS_URL") and not program("redis-server"):
        found.append("Redis: install redis-server, or set EXAMPLE_REDIS_URL=redis://127.0.0.1:6379/9 (empty)")
    return found


@contextmanager
def mysql(folder: Path) -> Iterator[str]:
    """The URL of an empty database."""
    given = os.environ.get("EXAMPLE_MYSQL_URL", "").rstrip("/")
    server = None if given else start_mariadb(folder / "mariadb")
    url = given or server.url  # type: ignore[union-attr]  # there is one or the other
    name = f"room_example_{secrets.token_hex(4)}"
    execute(url, f"CREATE DATABASE {name}")
    try:
        yield f"{url}/{name}"
    finally:
        execute(url, f"DROP DATABASE {name}")
        if server is not None:
            server.stop()


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """The URL of an empty database."""
    given, binary = os.environ.get("EXAMPLE_REDIS_URL"), program("redis-server")
    if given:
        with closing(Redis.from_url(given)) as client:
            if client.dbsize():
                raise SystemExit("EXAMPLE_REDIS_URL: the database is not empty: name one that is, as in …:6379/9")
            try:
                yield given
            finally:
                client.flushdb()
        return
    assert binary is not None, "what is missing was looked for"
    server = RedisServer(folder / "redis", binary)
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


class Onlooker:
    """Shows what arrives in the stream."""

    def __init__(self, redis_url: str) -> None:
        self.arrived: list[Envelope] = []
        self._url = redis_url

    def look(self) -> None:
        """What is new; of one room every event."""
        new = stream_events(self._url)[len(self.arrived) :]
        self.arrived += new
        for event in new:
            if event.room_id == SHOWN:
                what = ", ".join(f"{name} {value}" for name, value in event.body.items())
                say(f"  {event.room_id} {event.room_version:>4}  {event.event_type:<18} {what}"[:110])

    def waiting(self) -> int:
        """Wake-ups that are to come."""
        with closing(Redis.from_url(self._url)) as client:
            count: Any = client.zcard(KEY)
        return int(count)


def work(folder: Path, url: str, redis_url: str, tencent: TencentServer) -> tuple[Load, Onlooker, bool]:
    """Clients for a while; then until nothing is on its way any more, and whether that came to be."""
    onlooker, load = Onlooker(redis_url), Load()
    with ExitStack() as stack:
        for node in RELAYS:
            environ = relay_environ(folder, node, url, redis_url, tencent.url, APP, SECRET)
            if node == RELAYS[0]:
                say(Cli(folder, CONFIG, **environ)("init-db").ok().strip())
            stack.enter_context(Daemon(CONFIG, folder / f"{node}.log", **environ))
        nodes = stack.enter_context(services(folder, url, redis_url, *NODES, ROCKET_DELAY_MS=3000))
        urls = [node.url for node in nodes]
        say(f"the room service: {', '.join(urls)}; outboxd: {', '.join(RELAYS)}; Tencent IM: {tencent.url}")
        say(f"{2 * len(ROOMS)} clients in {len(ROOMS)} rooms for {SECONDS:g} s; what arrives of {SHOWN}:")
        until_s = time.monotonic() + SECONDS
        given = (urls, ROOMS, lambda: time.monotonic() >= until_s, load)
        clients = threading.Thread(target=run, args=given, daemon=True)
        clients.start()
        is_done = False
        ends_s = until_s + ENDS_S
        while not is_done and time.monotonic() < ends_s:
            time.sleep(0.2)
            onlooker.look()
            if not clients.is_alive():
                is_done = not unfinished(url) and not onlooker.waiting() and not unfinished(url)
        onlooker.look()
    return load, onlooker, is_done


def unfinished(url: str) -> int:
    """Events that are not delivered yet."""
    return int(query(url, "SELECT COUNT(*) FROM room_outbox WHERE status <> 'delivered'")[0][0])


def sum_up(url: str, load: Load, arrived: Sequence[Envelope], tencent: TencentServer) -> list[str]:
    """Say what happened; what does not fit together."""
    kinds = Counter(event.event_type for event in arrived)
    answers = load.by_status()
    groups = tencent.apps[APP].groups
    refused = sum(answers.values()) - answers[200]
    say()
    say(f"commands   {answers[200]} done, {refused} refused by a room or a wallet, {len(load.unanswered)} unanswered")
    told = ", ".join(f"{kind.removeprefix('Room')} {count}" for kind, count in kinds.most_common())
    say(f"events     {len(arrived)} in the stream: {told}")
    say(f"Tencent IM {len(groups)} groups, {sum(len(group.messages) for group in groups.values())} messages")
    say(f"rockets    {kinds['RoomRocketIgnited']} ignited, {kinds['RoomRocketLaunched']} launched in their time")
    database = Database(url)
    return audit.audit(database) + audit.audit_delivery(database, arrived)


def main() -> int:
    """The exit status."""
    if lacking := missing():
        for line in lacking:
            print(f"example: there is no {line}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="room-"))
    try:
        with mysql(folder) as url, redis(folder) as redis_url, TencentServer({APP: SECRET}) as tencent:
            load, onlooker, is_done = work(folder, url, redis_url, tencent)
            problems = sum_up(url, load, onlooker.arrived, tencent)
            if not is_done:
                problems.append(f"{unfinished(url)} events and {onlooker.waiting()} wake-ups are still on their way")
    except KeyboardInterrupt:
        print("example: interrupted", file=sys.stderr)
        shutil.rmtree(folder)
        return 1
    for problem in problems:
        say(f"WRONG: {problem}")
    if problems:
        say(f"the logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    say(f"rooms      {len(ROOMS)}, and each is what its delivered events make of it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
