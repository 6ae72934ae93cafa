"""Payloads as applications write them, to be relayed by tests and benchmarks."""

import json
import os
import random
from pathlib import Path

import pytest

Payload = tuple[str, str, bytes]
"""event_type, room_id, the payload."""

WORDS = (
    "room", "gift", "seat", "joined", "naïve", "Größe", "房间", "火箭", "مرحبا", "комната",
    "🚀", "a\u0000b", '"', "\\", "\u2028",
)  # fmt: skip
SMALLEST_BYTES, LARGEST_BYTES = 1_000, 40_000


def read_payloads(path: Path) -> list[Payload]:
    """One JSON object a line, with event_type, room_id and payload."""
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        (row["event_type"], row["room_id"], json.dumps(row["payload"], ensure_ascii=False).encode()) for row in rows
    ]


def make_payloads(count: int = 200, seed: int = 1) -> list[Payload]:
    """The same ones for the same seed: 1 KB to 40 KB of JSON, more small ones than large, with unicode."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        size_bytes = int(SMALLEST_BYTES * (LARGEST_BYTES / SMALLEST_BYTES) ** chance.random())
        words: list[str] = []
        left_bytes = size_bytes
        while left_bytes > 0:
            words.append(chance.choice(WORDS))
            left_bytes -= len(words[-1].encode()) + len('"", ')
        body = {"number": number, "ratio": chance.random(), "nested": {"empty": [], "none": None}, "words": words}
        event_type = chance.choice(("RoomCreated", "RoomClosed", "RoomGiftSent"))
        payload = json.dumps(body, ensure_ascii=False).encode()
        made.append((event_type, f"room-{chance.randrange(50)}", payload))
    return made


def load_payloads() -> list[Payload]:
    """Real ones from the file that OUTBOXD_TEST_PAYLOADS names, else made ones of like sizes."""
    path = os.environ.get("OUTBOXD_TEST_PAYLOADS")
    return read_payloads(Path(path)) if path else make_payloads()


@pytest.fixture(scope="session")
def payloads() -> list[Payload]:
    """At least a hundred of them, 1 KB to tens of KB, with unicode."""
    return load_payloads()
