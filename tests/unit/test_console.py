"""The publisher that prints: what it prints, and standard outputs that do not take it."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outboxd.event import DELIVERED, Event, Retry
from outboxd.publishers.api import Publisher
from outboxd.publishers.console import ConsolePublisher, line_of
from tests.services.publishing import collect, make_event, publish, publish_all, step

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Descriptors to read from and to write to; tests may close them."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:  # closed by the test
            pass


def fill(writing: int) -> int:
    """Put into a pipe what goes in; how many bytes."""
    os.set_blocking(writing, False)
    filled = 0
    try:
        while True:
            filled += os.write(writing, b"#" * 1000)
    except BlockingIOError:
        pass
    os.set_blocking(writing, True)
    return filled


def test_an_event_is_one_line_of_json() -> None:
    """With the payload as it is, its line breaks aside."""
    event = make_event(event_id="e1", envelope=b'{\n  "a": "\xc3\xa9\\n",\r\n  "n": 1.0\n}')
    line = line_of(event)
    assert line.count(b"\n") == 1
    printed = json.loads(line)
    assert printed["event_id"] == "e1"
    assert printed["envelope"] == {"a": "é\n", "n": 1.0}


@pytest.mark.parametrize(
    ("envelope", "content_type"), [(b"\x00\xff\n", "application/x-protobuf"), (b"{", "application/json")]
)
def test_a_payload_that_is_no_json_is_printed_as_base64(envelope: bytes, content_type: str) -> None:
    """Bytes would break the line, or the terminal."""
    printed = json.loads(line_of(make_event(envelope=envelope, content_type=content_type)))
    assert "envelope" not in printed
    assert printed["envelope_base64"]


def lines_through(publisher: Publisher, reading: int, events: list[Event]) -> list[bytes]:
    """What a reader gets who reads along."""
    waiting, text, done = events[::-1], b"", 0
    os.set_blocking(reading, False)
    until_s = time.monotonic() + 10
    while done < len(events):
        assert time.monotonic() < until_s
        while waiting and publisher.submit(waiting[-1], until_s):
            waiting.pop()
        done += len(step(publisher, time.monotonic() + 0.01))
        try:
            text += os.read(reading, 10_000)
        except BlockingIOError:
            pass
    while True:
        try:
            text += os.read(reading, 1_000_000)
        except BlockingIOError:
            return text.splitlines()


def test_every_event_arrives_whole_and_in_order(pipe: tuple[int, int]) -> None:
    """Also lines that are larger than the pipe, behind a reader who is slow."""
    reading, writing = pipe
    publisher = ConsolePublisher(writing)
    sizes = [0, 10, 5000, 200_000, 1, 70_000, *range(100)]
    events = [make_event(envelope=b'"%b"' % (b"x" * size)) for size in sizes]
    lines = lines_through(publisher, reading, events)
    assert [json.loads(line)["event_id"] for line in lines] == [event.event_id for event in events]
    publisher.close(time.monotonic() + 1)


def test_a_file_is_appended_to(tmp_path: Path) -> None:
    """`outboxd > events.jsonl`: what stands in it stays, and the descriptor's position is used."""
    path = tmp_path / "events.jsonl"
    with path.open("wb") as file:
        file.write(b"first\n")
        file.flush()
        publisher = ConsolePublisher(file.fileno())
        publish_all(publisher, [make_event() for _ in range(500)])
        publisher.close(time.monotonic() + 1)
    lines = path.read_bytes().splitlines()
    assert lines[0] == b"first"
    assert len({json.loads(line)["event_id"] for line in lines[1:]}) == 500


def test_a_socket_takes_events() -> None:
    """Standard output of a service under systemd is one. Its own blocking mode is left alone."""
    near, far = socket.socketpair()
    with near, far:
        publisher = ConsolePublisher(near.fileno())
        assert publish(publisher, make_event(event_id="e1")) is DELIVERED
        assert json.loads(far.recv(10_000))["event_id"] == "e1"
        for _ in range(20):
            assert publisher.submit(make_event(envelope=b"x" * 100_000), time.monotonic() + 0.2)
        outcomes = [outcome for _, outcome in collect(publisher, 20, timeout_s=1)]
        assert isinstance(outcomes[-1], Retry)
        assert near.getblocking()
        publisher.close(time.monotonic() + 1)


def test_a_full_pipe_is_no_fault_of_the_event_and_is_used_again(pipe: tuple[int, int]) -> None:
    """G6: whoever reads has stopped. Line ends stay where they belong, and others' writes stay blocking."""
    reading, writing = pipe
    filled = fill(writing)
    publisher = ConsolePublisher(writing)
    outcome = publish(publisher, make_event(), timeout_s=0.1)
    assert isinstance(outcome, Retry)
    assert outcome.counted is False
    assert os.get_blocking(writing)
    assert os.read(reading, filled) == b"#" * filled
    assert publish(publisher, make_event(event_id="again")) is DELIVERED
    assert json.loads(os.read(reading, 100_000).splitlines()[-1])["event_id"] == "again"
    publisher.close(time.monotonic() + 1)


def test_a_line_that_was_cut_does_not_swallow_the_next(pipe: tuple[int, int]) -> None:
    """Half of a large event is out when its time is over; the next event begins on a line of its own."""
    reading, writing = pipe
    publisher = ConsolePublisher(writing)
    cut = make_event(envelope=b'"%b"' % (b"x" * 200_000))
    assert isinstance(publish(publisher, cut, timeout_s=0.1), Retry)
    (line,) = lines_through(publisher, reading, [make_event(event_id="next")])[1:]
    assert json.loads(line)["event_id"] == "next"
    publisher.close(time.monotonic() + 1)


def test_a_reader_who_has_gone_is_no_fault_of_the_event(pipe: tuple[int, int]) -> None:
    """`outboxd | head -1`: every event waits for a better time, and the process lives."""
    reading, writing = pipe
    publisher = ConsolePublisher(writing)
    os.close(reading)
    for _ in range(3):
        assert publisher.submit(make_event(), time.monotonic() + 1)
    for _, outcome in collect(publisher, 3):
        assert isinstance(outcome, Retry)
        assert (outcome.reason, outcome.counted) == ("connect", False)
        assert "Broken pipe" in outcome.error
    publisher.close(time.monotonic() + 1)


def test_a_standard_output_that_is_closed_is_said(pipe: tuple[int, int]) -> None:
    """`outboxd >&-`."""
    _, writing = pipe
    os.close(writing)
    outcome = publish(ConsolePublisher(writing), make_event())
    assert isinstance(outcome, Retry)
    assert outcome.counted is False


def test_standard_output_is_what_it_writes_to() -> None:
    """The configured publisher, in a process whose standard output is a pipe."""
    program = (
        "import time; from outboxd.config.schema import Console; from outboxd.publishers import open_publisher\n"
        "from tests.services.publishing import make_event, publish\n"
        "publish(open_publisher(Console(name='console'), 'room_outbox', 1.0), make_event(event_id='e1'))"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True, timeout=30)
    assert json.loads(run.stdout)["event_id"] == "e1"
