"""Who is let in to the admin API of a running daemon, and what becomes of requests that are not as they should be."""

import hashlib
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from outboxd.config.schema import PERMISSIONS, Config
from tests.services.admin import JSON, TOKEN, Answer, Client, open_connection, raw, routes
from tests.services.daemon import Daemon, write_config
from tests.services.find import free_port, outside_address, require
from tests.services.lanes import table_of

PUBLISHERS = {"bus": {"type": "null"}}
DAY_MS = 86_400_000
OPEN = ("/metrics", "/healthz", "/readyz")

NONE = {"event_id": "nobody-has-it"}
ROUTES: dict[tuple[str, str], tuple[str, str, object, int]] = {
    ("GET", "/api/lanes"): ("lanes:read", "/api/lanes", None, 200),
    ("GET", "/api/events/<event_id:event_id>"): ("events:read", "/api/events/e1", None, 200),
    ("GET", "/api/dead"): ("dead:read", "/api/dead", None, 200),
    ("GET", "/api/dead/<event_id:event_id>"): ("dead:read", "/api/dead/e1", None, 404),
    ("POST", "/api/dead/replay"): ("dead:replay", "/api/dead/replay", NONE, 404),
    ("POST", "/api/dead/purge"): ("dead:purge", "/api/dead/purge", NONE, 404),
    ("POST", "/api/dead/kill"): ("dead:kill", "/api/dead/kill", NONE, 404),
}
"""(method, rule) -> the permission, a request, and its status for who is let in."""


@dataclass(frozen=True)
class Place:
    """A running daemon. near: its port on loopback. far: the same on an address that others reach."""

    daemon: Daemon
    config: Config
    port: int

    @property
    def near(self) -> Client:
        return Client(("127.0.0.1", self.port))

    @property
    def far(self) -> Client:
        reason = "this machine has loopback addresses only"
        return Client((require("outside-address", outside_address(), reason), self.port))

    @property
    def owner(self) -> Client:
        return Client(Path(self.config.admin.socket))


def secret_without(permission: str) -> str:
    """A token that may do everything else."""
    return f"all-but-{permission}-of-the-test"


def place(stack: ExitStack, folder: Path, listen: str, *, with_tokens: bool = True) -> Place:
    folder.mkdir()
    port = free_port()
    admin: dict[str, object] = {"listen": f"{listen}:{port}", "hosts": ["relay.example"]}
    if with_tokens:
        (folder / "token").write_text(TOKEN)
        tokens = [
            {
                "name": f"all-but-{missing}",
                "sha256": hashlib.sha256(secret_without(missing).encode()).hexdigest(),
                "permissions": [permission for permission in PERMISSIONS if permission != missing],
            }
            for missing in PERMISSIONS
        ]
        (folder / "tokens.yaml").write_text(yaml.safe_dump(tokens))
        admin |= {"token_file": str(folder / "token"), "tokens_file": str(folder / "tokens.yaml")}
    config = write_config(folder / "o.yaml", f"sqlite:///{folder}/o.db", PUBLISHERS, admin=admin, concurrency=1)
    table = stack.enter_context(table_of(config))
    table.fill(1, event_id="e1", next_retry_at_ms=table.now_ms() + DAY_MS)
    return Place(stack.enter_context(Daemon(folder / "o.yaml", folder / "log")), config, port)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    """Daemons that listen on this machine only, for others with tokens, and for others without one."""
    folder = tmp_path_factory.mktemp("admin")
    with ExitStack() as stack:
        made = {
            "loopback": place(stack, folder / "l", "127.0.0.1"),
            "everywhere": place(stack, folder / "e", "0.0.0.0"),
            "closed": place(stack, folder / "c", "0.0.0.0", with_tokens=False),
        }
        for one in made.values():
            one.daemon.admin_pid()
        yield made


@pytest.fixture
def here(places: dict[str, Place]) -> Place:
    return places["loopback"]


def asked(client: Client, method: str, target: str, document: object, token: str | None = None) -> Answer:
    client = Client(client.address, token)
    return client.get(target) if method == "GET" else client.post(target, document)


def test_every_route_is_tried_here(here: Place) -> None:
    """A route that is added has its permission tested."""
    tried = {route: permission for route, (permission, *_) in ROUTES.items()}
    assert routes(here.config) == {**tried, **{("GET", target): "open" for target in OPEN}}
    assert set(tried.values()) == set(PERMISSIONS)


@pytest.mark.parametrize("route", ROUTES)
def test_a_route_asks_for_its_permission_on_loopback(here: Place, route: tuple[str, str]) -> None:
    """Reads need no token there; what is sent must be right."""
    permission, target, document, status = ROUTES[route]
    method, client = route[0], here.near
    assert asked(client, method, target, document).status == (status if method == "GET" else 401)
    assert_asks_for_a_token(client, method, target, document, permission, status)


@pytest.mark.parametrize("route", ROUTES)
def test_a_route_asks_for_its_permission_from_elsewhere(places: dict[str, Place], route: tuple[str, str]) -> None:
    """Reads too."""
    permission, target, document, status = ROUTES[route]
    method, client = route[0], places["everywhere"].far
    refusal = asked(client, method, target, document)
    assert (refusal.status, refusal.headers["Www-Authenticate"]) == (401, 'Bearer realm="outboxd"')
    assert permission in refusal.error
    assert_asks_for_a_token(client, method, target, document, permission, status)


def assert_asks_for_a_token(
    client: Client, method: str, target: str, document: object, permission: str, status: int
) -> None:
    wrong = asked(client, method, target, document, TOKEN + "x")
    assert (wrong.status, bool(wrong.error)) == (401, True)
    lacking = asked(client, method, target, document, secret_without(permission))
    assert (lacking.status, permission in lacking.error) == (403, True)
    for good in (TOKEN, secret_without(next(name for name in PERMISSIONS if name != permission))):
        assert asked(client, method, target, document, good).status == status


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", ["loopback", "everywhere", "closed"])
def test_the_unix_socket_asks_for_nothing(places: dict[str, Place], name: str, route: tuple[str, str]) -> None:
    """Who may open it is the daemon's owner."""
    _, target, document, status = ROUTES[route]
    owner = places[name].owner
    assert Path(places[name].config.admin.socket).stat().st_mode & 0o777 == 0o600
    for token in (None, "wrong-token-of-the-test"):
        assert asked(owner, route[0], target, document, token).status == status
    assert owner.ask("GET", target if route[0] == "GET" else "/api/lanes", headers={"Host": "x"}).status != 421


@pytest.mark.parametrize("route", ROUTES)
def test_without_a_token_a_listener_for_others_serves_no_api(places: dict[str, Place], route: tuple[str, str]) -> None:
    """And says so, and how to change it, whoever asks."""
    _, target, document, _ = ROUTES[route]
    for client in (places["closed"].near, places["closed"].far):
        for token in (None, TOKEN):
            refusal = asked(client, route[0], target, document, token)
            assert (refusal.status, "no token is configured" in refusal.error) == (403, True)
            assert "admin.token_file" in refusal.json["todo"]


def test_it_is_said_at_the_start_where_only_metrics_and_health_are_served(places: dict[str, Place]) -> None:
    """Who set it up so may not have meant it."""
    found = {name: one.daemon.admin_lines("admin_closed") for name, one in places.items()}
    assert {name: len(lines) for name, lines in found.items()} == {"loopback": 0, "everywhere": 0, "closed": 1}
    assert found["closed"][0]["level"] == "warning"
    assert found["closed"][0]["address"] == f"0.0.0.0:{places['closed'].port}"
    refusal = places["closed"].near.get("/")
    assert (refusal.status, "no token is configured" in refusal.error) == (403, True)


@pytest.mark.parametrize("target", OPEN)
def test_metrics_and_health_are_open_to_everybody(places: dict[str, Place], target: str) -> None:
    """Probes and scrapes come without a token, by the address of the pod."""
    for one in places.values():
        clients = [one.near, one.owner] + ([one.far] if one.config.admin.host == "0.0.0.0" else [])
        assert [client.get(target).status for client in clients] == [200] * len(clients)


# names, sites


@pytest.mark.parametrize("target", [*OPEN, "/api/lanes", "/nothing"])
def test_a_foreign_name_in_host_is_refused_everywhere(places: dict[str, Place], target: str) -> None:
    """DNS rebinding: a page's own name that points here."""
    for name in ("loopback", "everywhere"):
        for host in ("evil.example", "evil.example:9464", "", "127.0.0.1.evil.example"):
            refusal = Client(places[name].near.address, TOKEN).get(target, Host=host)
            assert (refusal.status, bool(refusal.error)) == (421, True), host
    assert raw(places["loopback"].near.address, f"GET {target} HTTP/1.0\r\n\r\n".encode()).status == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "LOCALHOST:1", "[::1]:9464", "relay.example:80"])
def test_names_of_this_machine_and_configured_ones_are_taken(here: Place, host: str) -> None:
    assert here.near.get("/api/lanes", Host=host).status == 200


def test_a_page_of_another_site_changes_nothing(here: Place) -> None:
    """Also with the right token: it was sent by a browser that somebody led here."""
    client = Client(here.near.address, TOKEN)
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        refusal = client.post("/api/dead/replay", NONE, headers)
        assert (refusal.status, "other sites" in refusal.error) == (403, True)
        assert here.owner.post("/api/dead/replay", NONE, headers).status == 403
    same = {"Origin": f"http://127.0.0.1:{here.port}", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/dead/replay", NONE, same).status == 404


def test_what_a_proxy_says_gives_nobody_a_right(places: dict[str, Place]) -> None:
    """X-Forwarded-For is written by whoever likes to."""
    claim = {"X-Forwarded-For": "127.0.0.1", "X-Real-Ip": "127.0.0.1", "Forwarded": "for=127.0.0.1"}
    assert places["everywhere"].far.get("/api/lanes", **claim).status == 401
    for name, value in claim.items():
        assert places["loopback"].near.get("/api/lanes", **{name: value}).status == 401, "whoever that is, is far"


# requests that are not as they should be


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


def test_nothing_of_all_this_is_an_error_in_the_log(places: dict[str, Place]) -> None:
    """`error` means that a person must act; what strangers send is no reason. Last, after all the others."""
    for one in places.values():
        assert one.near.get("/healthz").status == 200
        lines = one.daemon.lines()
        assert [line for line in lines if line["level"] == "error" or line["event"] == "library_message"] == []
