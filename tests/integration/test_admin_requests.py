"""Requests to the admin API that are not as they should be: each is answered, and the daemon goes on."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.services.admin import JSON, open_connection, raw
from tests.services.admin_places import Place, start_place

OPEN = ("/metrics", "/healthz", "/readyz")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ExitStack() as stack:
        made = start_place(stack, tmp_path_factory.mktemp("requests") / "l", "127.0.0.1")
        made.daemon.admin_pid()
        yield made


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"event_id=e1", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (b'{"event_id": "e1"}', {"Content-Type": "text/plain"}, 415),
        (b'{"event_id": "e1"}', {}, 415),
        (b"{", JSON, 400),
        (b"[1]", JSON, 400),
        (b'{"event_id": "\xff"}', JSON, 400),
        (b"[" * 30_000 + b"]" * 30_000, JSON, 400),
        (b'{"event": "e1"}', JSON, 400),
        (b'{"event_id": "e1", "dry_run": "yes"}', JSON, 400),
        (b'{"event_id": "e1", "lane": "nope"}', JSON, 400),
        (b'{"event_id": "\\u00fc"}', JSON, 404),
        (b'{"room": "' + b"x" * 70_000 + b'"}', JSON, 413),
        (b"x", {**JSON, "Content-Length": "10000000000"}, 413),
        (b"1\r\n{\r\n0\r\n\r\n", {**JSON, "Transfer-Encoding": "chunked", "Content-Length": ""}, 400),
    ],
    ids=range(14),
)
def test_a_body_that_cannot_be_used_is_refused(here: Place, body: bytes, headers: dict[str, str], status: int) -> None:
    """And the daemon goes on."""
    answer = here.owner.ask("POST", "/api/dead/replay", body, headers)
    assert answer.status == status, answer
    assert here.owner.get("/healthz").body == b"alive\n"


LONG = b'{"room": "' + b"x" * 10_000_000 + b'"}'
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(LONG), LONG)


@pytest.mark.parametrize(
    ("body", "headers"), [(LONG, JSON), (CHUNKED, {**JSON, "Transfer-Encoding": "chunked"})], ids=["long", "chunked"]
)
def test_a_body_that_is_too_long_is_read_to_its_end_and_answered(
    here: Place, body: bytes, headers: dict[str, str]
) -> None:
    """Else its sender would see a broken connection, and never learn why. Of what is read hardly anything is kept."""
    sent = {"Host": "localhost", **headers, **({"Content-Length": str(len(body))} if body is LONG else {})}
    lines = ["POST /api/dead/replay HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    answer = raw(here.owner.address, "\r\n".join([*lines, "", ""]).encode() + body)
    assert (answer.status, answer.error) == (413, "the body is longer than 64 KiB")


def test_of_a_body_that_is_too_long_nothing_goes_to_the_disk(here: Place) -> None:
    """500 connections that send 64 MiB each would fill it."""
    folder = Path(f"/proc/{here.daemon.admin_pid()}/fd")
    with open_connection(here.owner.address) as connection:
        head = f"POST /api/dead/replay HTTP/1.1\r\nHost: x\r\nContent-Length: {len(LONG)}\r\n\r\n"
        connection.sendall(head.encode() + LONG[:5_000_000])
        assert [str(link.readlink()) for link in folder.iterdir() if "deleted" in str(link.readlink())] == []
        connection.sendall(LONG[5_000_000:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("target", "status", "told"),
    [
        ("/api/dead?limt=3", 400, "did you mean limit?"),
        ("/api/dead?limit=0", 400, "from 1 to 1,000"),
        ("/api/dead?limit=1&limit=2", 400, "given twice"),
        ("/api/dead?since=yesterday", 400, "is no time"),
        ("/api/dead?error=%zz", 400, "begins no escape"),
        ("/api/dead?error=%ff", 400, "no UTF-8"),
        ("/api/dead?lane=nope", 400, "there is no lane 'nope'"),
        ("/api/lanes?x=1", 400, "unknown name x"),
        ("/api/events/e1?room=r", 400, "unknown name room"),
        ("/api/events/%zz", 400, "begins no escape"),
        ("/api/events/%ff", 404, "an event_id is ASCII"),
        ("/api/events/", 404, "nothing here"),
        ("/api/dead/", 404, "nothing here"),
        ("/api/nothing", 404, "nothing here"),
        ("/api//lanes", 404, "nothing here"),
        ("/static/../etc/passwd", 404, "nothing here"),
        ("/", 404, "nothing here"),
    ],
)
def test_a_question_that_cannot_be_understood_is_told_why(here: Place, target: str, status: int, told: str) -> None:
    answer = here.near.get(target)
    assert (answer.status, told in answer.error) == (status, True), answer


def test_methods_that_a_path_does_not_have_are_refused_with_those_that_it_has(here: Place) -> None:
    wrong = [("POST", "/api/lanes"), ("DELETE", "/api/dead/e1"), ("PUT", "/api/dead/replay"), ("TRACE", "/metrics")]
    for method, target in wrong:
        answer = here.owner.ask(method, target)
        assert (answer.status, bool(answer.error)) == (405, True)
        assert "GET" in answer.headers["Allow"]


@pytest.mark.parametrize("target", [*OPEN, "/api/lanes", "/api/nothing"])
def test_head_is_get_without_a_body(here: Place, target: str) -> None:
    answer, same = here.near.ask("HEAD", target), here.near.get(target)
    assert (answer.status, answer.body) == (same.status, b"")
    assert answer.headers["Content-Type"] == same.headers["Content-Type"]


def test_options_tells_the_methods_and_invites_no_other_site(here: Place) -> None:
    """A browser asks with it whether a page may send what it wants."""
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answer = here.near.ask("OPTIONS", "/api/dead/replay", headers=headers)
    assert (answer.status, answer.body) == (200, b"")
    assert "POST" in answer.headers["Allow"]
    assert [name for name in answer.headers if name.startswith("Access-Control")] == []


@pytest.mark.parametrize("target", [*OPEN, "/api/lanes", "/api/nothing", "/api/dead?x=1"])
def test_every_answer_tells_browsers_to_do_nothing_with_it(here: Place, target: str) -> None:
    """And does not tell what serves it."""
    headers = here.near.get(target).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert "Server" not in headers


TLS = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"


@pytest.mark.parametrize("garbage", [TLS, b"GET\r\n\r\n", b"\x00" * 300, b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_no_http_is_dropped(here: Place, garbage: bytes) -> None:
    """A TLS client, a port scan."""
    with open_connection(here.near.address) as connection:
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    assert here.near.get("/healthz").status == 200


def test_nothing_of_all_this_is_an_error_in_the_log(here: Place) -> None:
    """`error` means that a person must act; what strangers send is no reason. Last, after all the others."""
    assert here.near.get("/healthz").status == 200
    lines = here.daemon.lines()
    assert [line for line in lines if line["level"] == "error" or line["event"] == "library_message"] == []
