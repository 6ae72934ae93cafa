"""A job whose url is an address of the web: the limits of its time and of what is read are real."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outboxd.errors import JobFailed
from outboxd.jobs.web import BODY_BYTES, LIMIT_S, call_web
from tests.services.chaos import FULL
from tests.services.dead_ends import dripping, full_backlog
from tests.services.find import free_port, program, require
from tests.services.job_calls import call, context, failure, job
from tests.services.receiver import Receiver
from tests.services.silent import silent_server

ROOT = Path(__file__).parents[2]
SHORT_S = 0.6
LATE_S = 0.8
"""How much later than the limit an answer may be on a busy machine."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def timed(url: str, limit_s: float = SHORT_S) -> tuple[str, float]:
    """Reason of the failure, and how long it took."""
    began_s = time.monotonic()
    with pytest.raises(JobFailed) as failed:
        call_web(job(url), context(), limit_s)
    return str(failed.value), time.monotonic() - began_s


def assert_in_time(found: tuple[str, float], limit_s: float = SHORT_S) -> None:
    reason, took_s = found
    assert f"the limit is {limit_s:g} s" in reason
    assert limit_s * 0.9 <= took_s <= limit_s + LATE_S


def test_the_limit_holds_for_connecting_and_for_a_silent_server() -> None:
    """Nobody accepts; nobody answers."""
    with full_backlog() as port:
        assert_in_time(timed(f"http://127.0.0.1:{port}/"))
    port = free_port()
    with silent_server(port):
        assert_in_time(timed(f"http://127.0.0.1:{port}/"))
        assert_in_time(timed(f"https://127.0.0.1:{port}/"))


@pytest.mark.parametrize(
    "first",
    [b"HTTP/1.1 200 ", b"HTTP/1.1 200 OK\r\nX-A: ", b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"],
)
def test_the_limit_holds_however_the_answer_drips(first: bytes) -> None:
    """Each byte comes soon after the last one, and the answer never ends."""
    with dripping(first, every_s=0.05) as port:
        assert_in_time(timed(f"http://127.0.0.1:{port}/"))


SLOW_NAMES = """
import fcntl, socket, struct, sys, time
from outboxd.errors import JobFailed
from outboxd.jobs.registry import Context
from outboxd.jobs.web import call_web
from outboxd.schedule.records import Job
with socket.socket() as any_socket:  # SIOCSIFFLAGS: IFF_UP
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 1))
silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
silent.bind(("127.0.0.1", 53))
began_s = time.monotonic()
job = Job(id=1, name="", cron_expression="", url="http://slow.test/")
try:
    call_web(job, Context(job_id=1, job_name="", fire_at_ms=1), 0.6)
except JobFailed as error:
    print(f"{time.monotonic() - began_s:.2f} {error}")
"""


def test_the_limit_holds_while_the_system_looks_a_name_up(tmp_path: Path) -> None:
    """A name server that says nothing: the system would wait 10 s. In a network of its own, with such a server."""
    unshare = require("namespaces", program("unshare"), "the unshare program is not installed")
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:10 attempts:1\n")
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n")
    mount = "mount --bind resolv.conf /etc/resolv.conf && mount --bind hosts /etc/hosts"
    run = subprocess.run(
        [unshare, "--map-root-user", "--mount", "--net", "sh", "-c", f'{mount} && cd "$2" && exec "$0" -c "$1"',
         sys.executable, SLOW_NAMES, str(ROOT)],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    require("namespaces", run.stdout or None, f"this system gives no namespaces: {run.stderr[-200:]}")
    took, _, reason = run.stdout.partition(" ")
    assert "the limit is 0.6 s" in reason
    assert float(took) < 0.6 + LATE_S


def test_the_limit_is_30_seconds() -> None:
    """In the long form somebody waits for it."""
    assert LIMIT_S == 30.0
    if FULL:
        with dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", every_s=0.2) as port:
            began_s = time.monotonic()
            assert "the limit is 30 s" in failure(f"http://127.0.0.1:{port}/")
            assert 29 <= time.monotonic() - began_s <= 31


def test_an_answer_without_end_is_cut_and_its_status_counts(receiver: Receiver) -> None:
    """What follows 64 KiB is not read: a receiver cannot fill the memory, nor keep the job."""
    receiver.answer(status=200, announced_bytes=-1, repeat=b"x" * 65_536)
    began_s = time.monotonic()
    assert call(receiver.url) == "200 " + "x" * 1000
    assert time.monotonic() - began_s < 5
    receiver.answer(status=500, announced_bytes=-1, repeat=b"y" * 65_536)
    assert failure(receiver.url) == "500 " + "y" * 1000
    receiver.answer(status=200, body="z" * (BODY_BYTES - 1))
    assert call(receiver.url) == "200 " + "z" * 1000
