"""The example's room service, killed by itself between any two steps of its write chain, or frozen there: another node
goes on, and room, command log, outbox and wallet agree.
"""

import secrets
import signal
import threading
from collections.abc import Iterator

import pytest
import requests

from room_service.audit import audit
from room_service.database import Database
from room_service.settings import FAILPOINTS
from tests.services.mariadb import Server, execute
from tests.services.processes import is_stopped
from tests.services.receiver import Receiver
from tests.services.redis_server import private_redis
from tests.services.room_service import Chain, Service, as_json, chain, query
from tests.services.wait import wait_for

COINS = 1000
SCENES = len(FAILPOINTS) + 6
COMMITTED = FAILPOINTS.index("after_commit")
WITHIN_S = 30.0


class Scene:
    """A room with two people, whose gift is to be sent by the first node, which does not live to see the end of it."""

    def __init__(self, run: Chain, number: int) -> None:
        self.run = run
        self.first, self.second = run.nodes
        self.url = str(self.first.environ["DATABASE_URL"])
        self.room, self.sender, self.command_id = f"room-{number}", f"giver-{number}", f"gift-{number}"
        self.gift = {"user_id": self.sender, "to_user_id": "u-2", "gift_id": "rose", "coins": 10, "count": 3}
        self.second.account(self.sender, COINS)
        self.second.do(self.room, "create", user_id=self.sender, title="one")
        self.second.do(self.room, "join", user_id="u-2")

    def send_and_end(self, place: str, **environ: object) -> None:
        """The gift, to the first node, which is killed on the way."""
        self.begin(place, **environ)
        assert self.send() is None
        self.first.wait_killed()

    def begin(self, place: str, **environ: object) -> None:
        """The first node starts anew, so that it dies or freezes in the midst of the gift."""
        self.first.kill()
        self.first.start(FAILPOINT=f"send_gift:{place}", **environ)

    def until_taken(self, node: Service, kind: str, **fields: object) -> requests.Response:
        """A command is sent until it has an answer, as clients do; the first node may be dead and its leases not."""

        def answer() -> requests.Response | None:
            try:
                got = node.post_within(1.5, self.room, kind, fields)
            except requests.RequestException:  # passed on to a node that is gone, or frozen
                return None
            return got if got.status_code != 503 else None

        fields = {"command_id": f"{kind}-{secrets.token_hex(4)}", **fields}
        got = wait_for(answer, WITHIN_S, f"{kind} to be answered")
        assert got.status_code == 200, got.text
        return got

    def send(self) -> requests.Response | None:
        """The gift, to the first node; None: the connection broke."""
        try:
            return self.first.post(self.room, "send_gift", command_id=self.command_id, **self.gift)
        except requests.RequestException:
            return None

    def ended(self) -> str:
        """What the first node says that became of the gift, once it does."""
        lines = [line for line in self.first.lines("room_command_timing") if line["command_id"] == self.command_id]
        return str(lines[-1]["outcome"]) if lines else ""

    def check(self, is_done: bool) -> None:
        """The gift was given and paid once, or neither."""
        room = self.second.room(self.room)
        (coins,) = query(self.url, "SELECT coins FROM wallet_account WHERE user_id = %s", self.sender)[0]
        debits = query(self.url, "SELECT state, coins FROM wallet_debit WHERE command_id = %s", self.command_id)
        logged = query(self.url, "SELECT version FROM room_command WHERE command_id = %s", self.command_id)
        wanted = (3, 30, COINS - 30, 1) if is_done else (0, 0, COINS, 0)
        assert (room["gifts"], room["heat"], coins, len(logged)) == wanted
        assert {debit[0] for debit in debits} <= ({"spent", "held"} if is_done else {"refunded"})
        assert audit(Database(self.url)) == []

    def check_delivered(self) -> None:
        """What the stream got makes the room, and nothing is held any more."""
        states = query(self.url, "SELECT state FROM wallet_debit WHERE command_id = %s", self.command_id)
        assert states == [("spent",)]
        self.run.relayed()
        assert as_json(self.run.told(self.room)) == self.second.room(self.room)


@pytest.fixture(scope="module")
def scenes(mysql_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iterator[Scene]]:
    """Rooms of two nodes with their relay, for all of these tests; each takes one."""
    name = f"test_{secrets.token_hex(6)}"
    mysql_server.start()
    execute(mysql_server.url, f"CREATE DATABASE {name}")
    folder, url = tmp_path_factory.mktemp("stage"), f"{mysql_server.url}/{name}"
    with private_redis() as redis, chain(folder, url, redis.url, "a", "b", LEASE_MS=800) as run:
        rooms = [Scene(run, number) for number in range(SCENES)]
        run.nodes[1].stop()  # gives them away
        run.nodes[1].start()
        yield iter(rooms)
    execute(mysql_server.url, "SET SESSION lock_wait_timeout = 10", f"DROP DATABASE {name}")


@pytest.mark.parametrize("place", [place for place in FAILPOINTS if place != "after_publish"])
def test_killed_anywhere_in_the_write_chain(scenes: Iterator[Scene], place: str) -> None:
    """First somebody else's command comes, then the gift again: it is there once, paid once, and told of once."""
    scene = next(scenes)
    scene.send_and_end(place)
    scene.until_taken(scene.second, "join", user_id="u-3")
    is_done = FAILPOINTS.index(place) >= COMMITTED
    scene.check(is_done)
    answer = scene.until_taken(scene.second, "send_gift", command_id=scene.command_id, **scene.gift)
    assert len(answer.json()["events"]) == 2
    assert scene.second.lines("room_command_timing")[-1]["outcome"] == ("repeated" if is_done else "done")
    scene.check(True)
    scene.check_delivered()


@pytest.mark.parametrize(
    ("place", "outcome"),
    [
        ("after_lease", "done"),  # its epoch comes after the other node's, which reads the room anew
        ("after_mutate", "WalletFenced"),
        ("after_debit", "Fenced"),
        ("before_commit", "Unavailable"),
        ("after_commit", "done"),
    ],
)
def test_frozen_while_another_node_takes_the_room(scenes: Iterator[Scene], place: str, outcome: str) -> None:
    """It goes on when everybody believes it dead: with an epoch that is over it can neither save nor take money any
    more. Frozen in its transaction it holds the room until the server gives it up.
    """
    scene = next(scenes)
    scene.begin(f"{place}:stop")
    sending = threading.Thread(target=scene.send)
    sending.start()
    wait_for(lambda: is_stopped(scene.first.process.pid), 10, "the node to freeze")
    scene.until_taken(scene.second, "join", user_id="u-3")
    scene.check(place == "after_commit")
    scene.first.signal(signal.SIGCONT)
    assert wait_for(scene.ended, WITHIN_S, "the first node to come to an end with the gift") == outcome
    sending.join(20)
    scene.check(outcome == "done")
    scene.until_taken(scene.second, "mic_up", user_id="u-2", seat=1)
    scene.until_taken(scene.second, "send_gift", command_id=scene.command_id, **scene.gift)
    scene.check(True)
    scene.check_delivered()


def test_killed_right_after_publishing_at_once(scenes: Iterator[Scene]) -> None:
    """The rows that it did not mark are `pending` still, and held for a while; the relay has them then."""
    scene = next(scenes)
    with Receiver() as activity:
        scene.send_and_end("after_publish", ACTIVITY_URL=activity.url)
        assert len(activity.requests) == 1
    scene.until_taken(scene.second, "join", user_id="u-3")
    scene.check(True)
    rows = query(scene.url, "SELECT event_id, status FROM room_outbox WHERE room_id = %s ORDER BY id", scene.room)
    assert (activity.event_ids()[0], "delivered") in rows
    scene.run.relayed()


def test_a_debit_that_nobody_comes_back_for_is_given_back(scenes: Iterator[Scene]) -> None:
    """No command comes to the room any more: the other node looks for debits that stay held."""
    scene = next(scenes)
    scene.send_and_end("after_debit")
    (state,) = query(scene.url, "SELECT state FROM wallet_debit WHERE command_id = %s", scene.command_id)[0]
    assert state == "held"
    scene.second.stop()
    scene.second.start(HELD_MS=500)
    wait_for(lambda: scene.second.lines("debits_settled"), WITHIN_S, "the debit to be settled")
    scene.check(False)
