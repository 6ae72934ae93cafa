"""A job whose url is an address of the web: what is sent, what is a failure, and that the limit is real."""

import http.server
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outboxd import __version__
from outboxd.config.schema import Jobs
from outboxd.errors import JobFailed
from outboxd.jobs.registry import Context
from outboxd.jobs.targets import run_target
from outboxd.jobs.web import BODY_BYTES, LIMIT_S, call_web
from outboxd.redact import register
from outboxd.schedule.records import Job
from tests.services.chaos import FULL
from tests.services.dead_ends import dripping, full_backlog
from tests.services.find import free_port, program, require
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


def job(url: str, params: str = "") -> Job:
    return Job(id=7, name="nightly", cron_expression="0 0 * * * *", url=url, params=params)


def context(allow_private: bool = True) -> Context:
    settings = Jobs(allow_private_targets=allow_private)
    return Context(job_id=7, job_name="nightly", fire_at_ms=1_764_480_000_000, settings=settings)


def call(url: str, params: str = "") -> str:
    return run_target(job(url, params), context())


def failure(url: str, params: str = "") -> str:
    with pytest.raises(JobFailed) as failed:
        call(url, params)
    return str(failed.value)


def test_without_params_it_is_a_get(receiver: Receiver) -> None:
    """It says who calls, and for which tick."""
    receiver.answer(status=200, body="done")
    assert call(f"{receiver.url}?day=1", "  ") == "200 done"
    request = receiver.requests[0]
    assert (request.method, request.path, request.body) == ("GET", "/events?day=1", b"")
    assert request.headers == {
        "host": f"127.0.0.1:{receiver.port}",
        "user-agent": f"outboxd/{__version__}",
        "accept": "*/*",
        "x-outboxd-job": "7",
        "x-outboxd-fire-at-ms": "1764480000000",
    }


@pytest.mark.parametrize("params", ['{"days": 3, "name": "ü"}', "[1, 2]", '"text"', "0", " {} "])
def test_params_are_posted_as_the_json_that_they_are(receiver: Receiver, params: str) -> None:
    """To the byte."""
    receiver.answer(status=200)
    assert call(receiver.url, params) == "200"
    request = receiver.requests[0]
    assert (request.method, request.body) == ("POST", params.encode())
    assert request.headers["content-type"] == "application/json"
    assert "expect" not in request.headers


@pytest.mark.parametrize("params", ["day=3", "{'day': 3}", "{", "NaN", "\ud800"])
def test_params_that_are_no_json_are_not_sent(receiver: Receiver, params: str) -> None:
    """A receiver would have to guess."""
    assert failure(receiver.url, params).startswith("params are POSTed as JSON and are none: ")
    assert receiver.requests == []


@pytest.mark.parametrize("status", [201, 204, 206, 304, 400, 404, 429, 500, 503])
def test_anything_but_200_is_a_failure(receiver: Receiver, status: int) -> None:
    """The reason has the status and what came with it."""
    receiver.answer(status=status, body="no bananas")
    assert failure(receiver.url) == (str(status) if status in (204, 304) else f"{status} no bananas")


def test_of_an_answer_1000_characters_are_kept(receiver: Receiver) -> None:
    """Characters, not bytes; on one line."""
    receiver.answer(status=200, body="ü\n" + "x" * 5000)
    assert call(receiver.url) == "200 ü\\n" + "x" * 997
    receiver.answer(status=500, body="ü" * 5000)
    assert failure(receiver.url) == "500 " + "ü" * 1000


def test_secrets_in_an_answer_are_not_kept(receiver: Receiver) -> None:
    """As everywhere in the log."""
    register(["hunter-of-jobs-2"])
    receiver.answer(status=200, body="your key is hunter-of-jobs-2")
    assert call(receiver.url) == "200 your key is ***"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_that_says_where_it_points(receiver: Receiver, status: int) -> None:
    """It is not followed. What stands in its query is nobody's business."""
    receiver.answer(status=status, location="/elsewhere?key=abc", body="moved" + "x" * 2000)
    found = failure(receiver.url)
    where = f"http://127.0.0.1:{receiver.port}/elsewhere?***"
    assert found.startswith(f"{status} a redirect to {where} is not followed; movedx")
    assert len(found) == 1004
    assert len(receiver.requests) == 1


def test_a_redirect_is_no_way_to_another_protocol(receiver: Receiver) -> None:
    """Nor to a file of this machine."""
    receiver.answer(status=302, location="file:///etc/passwd")
    assert failure(receiver.url) == "302 a redirect to file:///etc/passwd is not followed"


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ({"close": "before_answer"}, "the connection ended before the answer did"),
        ({"close": "reset"}, "the connection ended before the answer did"),
        ({"status": 200, "body": "x" * 100, "close": "mid_answer"}, "the connection ended before the answer did"),
        ({"raw": b"SSH-2.0-OpenSSH\r\n"}, "the answer cannot be read"),
        ({"raw": b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 400_000 + b"\r\n\r\n"}, "headers are too long"),
    ],
)
def test_an_answer_that_breaks_off_is_a_failure(receiver: Receiver, behaviour: dict[str, object], words: str) -> None:
    """Although its status was 200."""
    receiver.answer(**behaviour)  # type: ignore[arg-type]
    assert words in failure(receiver.url)


def test_nobody_there_is_a_failure() -> None:
    """With the reason."""
    port = free_port()
    assert f"127.0.0.1:{port}" in failure(f"http://127.0.0.1:{port}/")
    assert "resolve host" in failure("http://no-such-host.invalid/")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://", "is no usable URL"),
        ("http://:80/", "is no usable URL"),
        ("http://host:port/", "is no usable URL"),
        ("http://host:99999/", "is no usable URL"),
        ("http://[::1/", "is no usable URL"),
        ("http://hö.example/", "is no usable URL"),
        ("http://host/a b", "is no usable URL"),
        ("http://host/\r\nX-Evil: 1", "is no usable URL"),
        ("http://tom@127.0.0.1/", "holds a user or password"),
        ("http://tom:parrot-91@127.0.0.1/", "holds a user or password"),
    ],
)
def test_a_url_that_cannot_be_called_is_told(url: str, words: str) -> None:
    """Without the password that somebody may have put there."""
    found = failure(url)
    assert words.replace("holds a user or password", "holds a user or password") in found
    assert "parrot-91" not in found


def test_the_url_may_be_written_in_capitals(receiver: Receiver) -> None:
    """Schemes have no case."""
    receiver.answer(status=200)
    assert call(receiver.url.replace("http", "HTTP")) == "200"


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


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"])
def test_proxies_of_the_environment_are_not_asked(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A proxy would connect to addresses that nobody has judged."""
    receiver.answer(status=200)
    with Receiver() as proxy:
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert call(receiver.url) == "200"
        assert proxy.accepted == 0


def test_cookies_are_neither_kept_nor_sent(receiver: Receiver) -> None:
    """Each call stands for itself."""
    receiver.answer(status=200, headers=(("Set-Cookie", "a=b"),))
    assert [call(receiver.url), call(receiver.url)] == ["200", "200"]
    assert [request for request in receiver.requests if "cookie" in request.headers] == []


def test_calls_in_many_threads_do_not_mix(receiver: Receiver) -> None:
    """Each has a handle of its own."""

    class Echo(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            return

    found: dict[int, str] = {}

    def ask(url: str, number: int) -> None:
        found[number] = call(url, json.dumps(number))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        url = f"http://127.0.0.1:{server.server_port}/"
        asking = [threading.Thread(target=ask, args=(url, number)) for number in range(40)]
        run_all(asking)
        server.shutdown()
        serving.join(5)
    assert found == {number: f"200 {number}" for number in range(40)}


def run_all(threads: list[threading.Thread]) -> None:
    act: tuple[Callable[[threading.Thread], object], ...] = (threading.Thread.start, lambda one: one.join(20))
    for do in act:
        for thread in threads:
            do(thread)
