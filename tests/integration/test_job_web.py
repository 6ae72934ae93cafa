"""A job whose url is an address of the web: what is sent, and what is a failure."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator

import pytest

from outboxd import __version__
from outboxd.redact import register
from tests.services.find import free_port
from tests.services.job_calls import call, failure
from tests.services.receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


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
