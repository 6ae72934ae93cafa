"""The example's room service as programs: nodes that are started, killed and asked over HTTP, and its relay."""

import itertools
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import requests

from outboxd.envelope import Envelope
from outboxd.message import decode
from room_service.__main__ import init
from room_service.audit import delivered_room
from room_service.database import Database
from room_service.domain import Room
from tests.services import children
from tests.services.cli import Cli
from tests.services.daemon import ROOT, Daemon, write_config
from tests.services.find import free_port
from tests.services.lanes import Table, table_of
from tests.services.redis_server import client
from tests.services.tencent import TencentServer
from tests.services.tencent_rooms import APP, KEYS
from tests.services.wait import wait_for

EXAMPLE = ROOT / "docs" / "examples" / "room_service"
CONFIG = EXAMPLE / "outbox.yaml"
PATH = os.pathsep.join((str(ROOT), str(EXAMPLE.parent)))
APP_CODE = "hyapp"
TIMEOUT_S = 10.0
LEASE_MS = 1500
"""As short as a busy machine allows: rooms of a node that was killed are free soon."""

_numbers = itertools.count(1)


class Service:
    """One node of the service over all its runs. environ: ROOM_… without the prefix; it may change between runs."""

    def __init__(self, folder: Path, node: str, database_url: str, redis_url: str, **environ: object) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = folder / f"{node}.log"
        usual = {"NODE": node, "URL": self.url, "DATABASE_URL": database_url, "REDIS_URL": redis_url}
        self.environ: dict[str, object] = {**usual, "LEASE_MS": LEASE_MS, "SNAPSHOT_EVERY": 5, **environ}
        self.start()

    def start(self, **environ: object) -> None:
        """Another run, which answers now. environ: for this one alone."""
        said = {f"ROOM_{name}": str(value) for name, value in {**self.environ, **environ}.items()}
        variables = [f"{name}={value}" for name, value in {**said, "PYTHONPATH": PATH}.items()]
        self.process = children.start(["env", *variables, sys.executable, "-m", "room_service"], self.log)

        def answers() -> bool:
            assert self.process.poll() is None, f"it ended at its start:\n{children.tail(self.log)}"
            return self.is_up()

        wait_for(answers, 20, f"the node to answer (its log is {self.log})")

    def is_up(self) -> bool:
        """Does it answer?"""
        try:
            return requests.get(f"{self.url}/healthz", timeout=1).ok
        except requests.RequestException:
            return False

    def post(self, room_id: str, kind: str, **fields: object) -> requests.Response:
        """One command, as its id says or with a new one; redirects are followed."""
        return self.post_within(TIMEOUT_S, room_id, kind, fields)

    def post_within(
        self, timeout_s: float, room_id: str, kind: str, fields: Mapping[str, object]
    ) -> requests.Response:
        """The same, for those who do not wait for long."""
        content = {"command_id": f"c-{next(_numbers)}", **fields}
        return requests.post(f"{self.url}/rooms/{room_id}/{kind}", json=content, timeout=timeout_s)

    def do(self, room_id: str, kind: str, **fields: object) -> list[str]:
        """A command that must succeed; the ids of its events."""
        answer = self.post(room_id, kind, **fields)
        assert answer.status_code == 200, f"{answer.status_code} {answer.text}\n{children.tail(self.log)}"
        return [event["event_id"] for event in answer.json()["events"]]

    def room(self, room_id: str) -> dict[str, Any]:
        """As it was committed last."""
        answer = requests.get(f"{self.url}/rooms/{room_id}", timeout=TIMEOUT_S)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def account(self, user_id: str, coins: int = 1000) -> None:
        """Open one."""
        assert requests.put(f"{self.url}/wallets/{user_id}", json={"coins": coins}, timeout=TIMEOUT_S).ok

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Of its log, those of an event; half a line of a process that was killed is passed over."""
        texts = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        found = [json.loads(text) for text in texts if text.startswith('{"time"') and text.endswith("}")]
        return [line for line in found if line["event"] == event]

    def wait_killed(self) -> None:
        """By its failpoint."""
        assert self.process.wait(TIMEOUT_S) == -signal.SIGKILL, children.tail(self.log)

    def kill(self) -> None:
        """SIGKILL."""
        children.stop(self.process, signal.SIGKILL)

    def signal(self, signum: int) -> None:
        """Send it to the process."""
        os.kill(self.process.pid, signum)

    def stop(self) -> None:
        """SIGTERM, or by force where that does nothing."""
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
        children.stop(self.process)


@contextmanager
def services(
    folder: Path, database_url: str, redis_url: str, *nodes: str, **environ: object
) -> Iterator[list[Service]]:
    """Nodes of one service, its tables made."""
    init(database_url)
    made: list[Service] = []
    try:
        for node in nodes:
            made.append(Service(folder, node, database_url, redis_url, **environ))
        yield made
    finally:
        for one in made:
            one.stop()


def relay_environ(
    folder: Path, node: str, database_url: str, redis_url: str, tencent_url: str, app: int, key: str
) -> dict[str, str]:
    """What the example's outbox.yaml wants of the environment."""
    return {
        "OUTBOXD_NODE_ID": node,
        "OUTBOXD_SOCKET": str(folder / f"{node}.sock"),
        "ROOM_DATABASE_URL": database_url,
        "ROOM_REDIS_URL": redis_url,
        "ROOM_TENCENT_URL": tencent_url,
        "ROOM_TENCENT_APP": str(app),
        "ROOM_TENCENT_KEY": key,
    }


def stream_events(redis_url: str, stream: str = "room_outbox") -> list[Envelope]:
    """The envelopes that the stream has, in the order of their arrival, repeats too."""
    with closing(client(redis_url)) as redis:
        entries: Any = redis.xrange(stream)
    return [msgspec.json.decode(decode(fields[b"m"]).envelope, type=Envelope) for _, fields in entries]


def query(database_url: str, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Rows, in a transaction of their own."""
    connection = Database(database_url).connect()
    try:
        with closing(connection.cursor()) as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall())
    finally:
        connection.close()


class Chain:
    """A service and its relay with the example's own configuration, from the HTTP API to the stream and Tencent IM."""

    def __init__(self, nodes: list[Service], daemon: Daemon, tencent: TencentServer, table: Table, redis: str) -> None:
        self.nodes, self.daemon, self.tencent, self.table, self.redis_url = nodes, daemon, tencent, table, redis

    def relayed(self) -> None:
        """Everything so far has been."""
        self.daemon.wait_until(self.table.is_done, "everything to be delivered")

    def told(self, room_id: str) -> Room:
        """The room by the events that have arrived in the stream, in their order."""
        return delivered_room(stream_events(self.redis_url), room_id)


@contextmanager
def chain(folder: Path, database_url: str, redis_url: str, *nodes: str, **environ: object) -> Iterator[Chain]:
    """All of it, up."""
    with TencentServer(KEYS) as tencent:
        said = relay_environ(folder, "relay", database_url, redis_url, tencent.url, APP, KEYS[APP])
        Cli(folder, CONFIG, **said)("init-db").ok()
        config = write_config(folder / "table.yaml", database_url, {"nothing": {"type": "null"}})
        with (
            table_of(config) as table,
            services(folder, database_url, redis_url, *nodes, **environ) as running,
            Daemon(CONFIG, folder / "relay.log", **said) as daemon,
        ):
            yield Chain(running, daemon, tencent, table, redis_url)
        assert tencent.mistakes == []


def as_json(room: Room) -> Any:
    """As the API has it."""
    return msgspec.json.decode(msgspec.json.encode(room))
