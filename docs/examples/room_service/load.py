"""Clients of the room service: people who come, speak, give and go, and who send a command until it has an answer.

    python -m room_service.load --seconds 10 --rooms 8 http://127.0.0.1:8001 http://127.0.0.1:8002
"""

import argparse
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import requests

TIMEOUT_S = 4.0
"""For one answer."""
PATIENCE_S = 60.0
"""So long a command is sent again before a client gives up: nodes may be down meanwhile."""
REST_S = 0.1
COINS = 10_000_000
KINDS = {"join": 20, "leave": 8, "mic_up": 14, "mic_down": 10, "send_gift": 40, "kick": 3, "ignite_rocket": 5}
"""What people do, by how often."""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that was answered. status: 200, or the refusal's."""

    room_id: str
    kind: str
    command_id: str
    status: int
    tries: int


@dataclass
class Load:
    """What a run has done so far; unanswered: commands that were given up, whose outcome nobody knows."""

    done: list[Done] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)

    def by_status(self) -> Counter[int]:
        """How many commands had which answer."""
        return Counter(done.status for done in self.done)


class Client:
    """One of them. Not for threads to share."""

    def __init__(self, urls: Sequence[str], load: Load, chance: random.Random, patience_s: float = PATIENCE_S) -> None:
        self._urls = urls
        self._load = load
        self._chance = chance
        self._patience_s = patience_s
        self._session = requests.Session()

    def send(self, room_id: str, kind: str, **fields: Any) -> int:
        """Send a command, again and again, until it has an answer; its status, 0 if it was given up."""
        command_id = f"{kind}-{uuid4()}"
        until_s = time.monotonic() + self._patience_s
        tries = 0
        while time.monotonic() < until_s:
            tries += 1
            status = self._try(f"{self._chance.choice(self._urls)}/rooms/{room_id}/{kind}", command_id, fields)
            if status and status < 500:
                self._load.done.append(Done(room_id, kind, command_id, status, tries))
                return status
            time.sleep(REST_S)
        self._load.unanswered.append(command_id)
        return 0

    def _try(self, url: str, command_id: str, fields: dict[str, Any]) -> int:
        try:
            # A redirect leads to the node that owns the room; 307 keeps the method and the body.
            answer = self._session.post(url, json={"command_id": command_id, **fields}, timeout=TIMEOUT_S)
        except requests.RequestException:
            return 0
        return answer.status_code

    def open_account(self, user_id: str) -> None:
        """With more coins than it will spend."""
        until_s = time.monotonic() + self._patience_s
        while time.monotonic() < until_s:
            try:
                url = f"{self._chance.choice(self._urls)}/wallets/{user_id}"
                if self._session.put(url, json={"coins": COINS}, timeout=TIMEOUT_S).ok:
                    return
            except requests.RequestException:
                time.sleep(REST_S)

    def live(self, room_id: str, users: Sequence[str], is_over: Callable[[], bool]) -> None:
        """One command after the other in a room."""
        kinds, weights = list(KINDS), list(KINDS.values())
        while not is_over():
            kind = self._chance.choices(kinds, weights)[0]
            self.send(room_id, kind, **self._fields(kind, users))

    def _fields(self, kind: str, users: Sequence[str]) -> dict[str, Any]:
        user_id, other = self._chance.choice(users), self._chance.choice(users)
        match kind:
            case "mic_up":
                return {"user_id": user_id, "seat": self._chance.randrange(8)}
            case "send_gift":
                coins, count = self._chance.choice((1, 10, 100)), self._chance.randint(1, 9)
                return {"user_id": user_id, "to_user_id": other, "gift_id": "rose", "coins": coins, "count": count}
            case "kick":
                return {"user_id": users[0], "target_user_id": other}
            case "ignite_rocket":
                return {"user_id": user_id, "level": self._chance.randint(1, 5)}
        return {"user_id": user_id}


def run(
    urls: Sequence[str], rooms: Sequence[str], is_over: Callable[[], bool], load: Load, seed: int = 1, each: int = 2
) -> None:
    """So many clients in each room, with users of its own, until it is over and all of them have their last answer."""

    def people(room_id: str, number: int) -> None:
        client = Client(urls, load, random.Random(f"{seed} {room_id} {number}"))
        users = [f"{room_id}-u{index}" for index in range(8)]
        if number == 0:
            for user_id in users:
                client.open_account(user_id)
            client.send(room_id, "create", user_id=users[0], title=f"the room {room_id}")
            for user_id in users[1:]:
                client.send(room_id, "join", user_id=user_id)
        client.live(room_id, users, is_over)

    threads = [
        threading.Thread(target=people, args=(room_id, number), daemon=True)
        for room_id in rooms
        for number in range(each)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()  # each of its commands has an end


def main() -> None:
    """Load from the command line, and its sum."""
    parser = argparse.ArgumentParser(description="Commands for the room service.")
    parser.add_argument("urls", nargs="+", metavar="URL")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rooms", type=int, default=8)
    given = parser.parse_args()
    load = Load()
    until_s = time.monotonic() + given.seconds
    rooms = [f"room-{number}" for number in range(given.rooms)]
    run(given.urls, rooms, lambda: time.monotonic() >= until_s, load)
    for status, count in sorted(load.by_status().items()):
        print(f"{status}: {count}")
    print(f"unanswered: {len(load.unanswered)}")


if __name__ == "__main__":
    main()
