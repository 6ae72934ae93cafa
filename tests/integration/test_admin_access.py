"""Who is let in to the admin API of a running daemon: every route by every kind of caller, from everywhere."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from outboxd.admin.access import ANY_TOKEN
from outboxd.config.schema import PERMISSIONS
from tests.services.admin import TOKEN, Answer, Client, raw, routes
from tests.services.admin_places import Place, secret_without, start_place

OPEN = ("/metrics", "/healthz", "/readyz")

NONE = {"event_id": "nobody-has-it"}
ROUTES: dict[tuple[str, str], tuple[str, str, object, int]] = {
    ("GET", "/api/lanes"): ("lanes:read", "/api/lanes", None, 200),
    ("GET", "/api/events/<event_id:event_id>"): ("events:read", "/api/events/e1", None, 200),
    ("GET", "/api/dead"): ("dead:read", "/api/dead", None, 200),
    ("GET", "/api/dead/<event_id:event_id>"): ("dead:read", "/api/dead/e1", None, 404),
    ("POST", "/api/dead/replay"): ("dead:replay", "/api/dead/replay", NONE, 404),
    ("POST", "/api/dead/purge"): ("dead:purge", "/api/dead/purge", NONE, 404),
    ("POST", "/api/dead/skip"): ("dead:skip", "/api/dead/skip", NONE, 409),
    ("POST", "/api/dead/kill"): ("dead:kill", "/api/dead/kill", NONE, 404),
    ("GET", "/api/job/list"): ("sys:job:list", "/api/job/list", None, 200),
    ("GET", "/api/job/info/<job_id>"): ("sys:job:list", "/api/job/info/999", None, 404),
    ("GET", "/api/job/log"): ("sys:job:list", "/api/job/log", None, 200),
    ("GET", "/api/job/daemonStatus"): (ANY_TOKEN, "/api/job/daemonStatus", None, 200),
    ("POST", "/api/job/add"): ("sys:job:add", "/api/job/add", {}, 400),
    ("POST", "/api/job/update"): ("sys:job:update", "/api/job/update", {"id": 999, "name": "n"}, 404),
    ("POST", "/api/job/delete"): ("sys:job:delete", "/api/job/delete", {"id": 999}, 404),
    ("POST", "/api/job/status"): ("sys:job:update", "/api/job/status", {"id": 999, "status": 1}, 404),
    **{
        (method, f"/api/job/{act}/<job_id>"): (f"sys:job:{permission}", f"/api/job/{act}/999", {}, 404)
        for act, permission in (("runOnce", "execute"), ("pause", "pause"), ("resume", "resume"))
        for method in ("GET", "POST")
    },
}
"""(method, rule) -> the permission, a request, and its status for who is let in."""


def is_change(route: tuple[str, str]) -> bool:
    """Some are also where the method is GET."""
    return route[0] == "POST" or route[1].endswith(("Once/<job_id>", "pause/<job_id>", "resume/<job_id>"))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    """Daemons that listen on this machine only, for others with tokens, and for others without one."""
    folder = tmp_path_factory.mktemp("admin")
    with ExitStack() as stack:
        made = {
            "loopback": start_place(stack, folder / "l", "127.0.0.1"),
            "everywhere": start_place(stack, folder / "e", "0.0.0.0"),
            "closed": start_place(stack, folder / "c", "0.0.0.0", with_tokens=False),
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
    assert set(tried.values()) == {*PERMISSIONS, ANY_TOKEN}


@pytest.mark.parametrize("route", ROUTES)
def test_a_route_asks_for_its_permission_on_loopback(here: Place, route: tuple[str, str]) -> None:
    """Reads need no token there; what is sent must be right."""
    permission, target, document, status = ROUTES[route]
    method, client = route[0], here.near
    assert asked(client, method, target, document).status == (401 if is_change(route) else status)
    assert_asks_for_a_token(client, method, target, document, permission, status)


@pytest.mark.parametrize("route", ROUTES)
def test_a_route_asks_for_its_permission_from_elsewhere(places: dict[str, Place], route: tuple[str, str]) -> None:
    """Reads too."""
    permission, target, document, status = ROUTES[route]
    method, client = route[0], places["everywhere"].far
    refusal = asked(client, method, target, document)
    assert (refusal.status, refusal.headers["Www-Authenticate"]) == (401, 'Bearer realm="outboxd"')
    assert (permission if permission != ANY_TOKEN else "a token") in refusal.error
    assert_asks_for_a_token(client, method, target, document, permission, status)


def assert_asks_for_a_token(
    client: Client, method: str, target: str, document: object, permission: str, status: int
) -> None:
    wrong = asked(client, method, target, document, TOKEN + "x")
    assert (wrong.status, bool(wrong.error)) == (401, True)
    if permission != ANY_TOKEN:
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


@pytest.mark.parametrize("act", ["runOnce", "pause", "resume"])
def test_a_change_by_get_is_made_by_nobody_who_did_not_mean_it(here: Place, act: str) -> None:
    """A link on a page, a preview, a browser that looks ahead, a program that asks whether something is there."""
    client, target = Client(here.near.address, TOKEN), f"/api/job/{act}/1"
    sites: list[dict[str, str]] = [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}]
    sites += [{"Sec-Fetch-Site": "same-site"}, {"Sec-Purpose": "prefetch;prerender"}, {"Purpose": "prefetch"}]
    before = here.owner.get("/api/job/info/1").json, here.owner.get("/api/job/log").json
    for headers in sites:
        for one in (client, here.owner):
            assert one.get(target, **headers).status == 403, headers
    for one in (client, here.owner):
        refusal = one.ask("HEAD", target)
        assert (refusal.status, sorted(refusal.headers["Allow"].split(", "))) == (405, ["GET", "OPTIONS", "POST"])
    assert here.near.ask("HEAD", target).status == 401
    assert here.near.ask("OPTIONS", target).status == 200
    now = here.owner.get("/api/job/info/1").json, here.owner.get("/api/job/log").json
    assert [_without_times(one) for one in now] == [_without_times(one) for one in before]


def _without_times(document: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in document.items() if name != "nextTimes"}


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
