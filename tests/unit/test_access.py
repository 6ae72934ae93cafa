"""Who may do what over the admin API: every rule by itself."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outboxd.admin import access
from outboxd.admin.access import NEIGHBOUR, Asked, Refused
from outboxd.config.schema import PERMISSIONS, Admin, Token

SECRET = "correct-horse-battery"


def token(name: str, secret: str, *permissions: str) -> Token:
    return Token(name, hashlib.sha256(secret.encode()).hexdigest(), permissions)


OPS = token("ops", SECRET, "dead:*", "lanes:read")
NEAR = Admin(tokens=(OPS,))
FAR = Admin(host="0.0.0.0", tokens=(OPS,))


def refused(settings: Admin, asked: Asked, permission: str) -> int:
    with pytest.raises(Refused) as caught:
        access.admit(settings, asked, permission)
    assert caught.value.error
    assert caught.value.todo
    return caught.value.status


def bearer(secret: str, **more: object) -> Asked:
    return Asked(authorization=f"Bearer {secret}", **more)  # type: ignore[arg-type]  # Asked's own words


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"])
def test_who_asks_from_this_machine_may_read_without_a_token(address: str) -> None:
    """A person with curl on the machine; also as an IPv6 listener sees them."""
    assert access.admit(NEAR, Asked(remote=address), "lanes:read") == NEIGHBOUR
    assert access.admit(FAR, Asked(remote=address, method="HEAD"), "dead:read") == NEIGHBOUR


@pytest.mark.parametrize("address", ["", "10.0.0.1", "128.0.0.1", "::2", "fe80::1", "localhost", "127.0.0.1.evil"])
def test_who_asks_from_elsewhere_needs_a_token_to_read(address: str) -> None:
    """What is no address of this machine is somewhere else."""
    assert refused(FAR, Asked(remote=address), "lanes:read") == 401


def test_a_change_needs_a_token_also_from_this_machine() -> None:
    """Every process of the machine may connect to loopback."""
    for method in ("POST", "PUT", "DELETE", "PATCH", "INVENTED"):
        assert refused(NEAR, Asked(method=method, remote="127.0.0.1"), "dead:replay") == 401


def test_a_proxy_on_this_machine_makes_nobody_a_neighbour() -> None:
    """No header gives a right: this one takes it away."""
    assert refused(NEAR, Asked(remote="127.0.0.1", is_forwarded=True), "lanes:read") == 401
    assert access.admit(NEAR, bearer(SECRET, remote="127.0.0.1"), "lanes:read") == "ops"


def test_what_changes_something_by_get_needs_a_token_also_from_this_machine() -> None:
    """Else a link on any page could be followed by who is at this machine."""
    assert refused(NEAR, Asked(remote="127.0.0.1", changes=True), "dead:replay") == 401
    assert access.admit(NEAR, bearer(SECRET, remote="127.0.0.1", changes=True), "dead:replay") == "ops"


def test_any_token_will_do_where_no_permission_is_asked_for() -> None:
    """But one that is configured."""
    nobody = Admin(host="0.0.0.0", tokens=(token("ops", SECRET),))
    assert access.admit(nobody, bearer(SECRET), access.ANY_TOKEN) == "ops"
    assert refused(nobody, bearer(SECRET + "x"), access.ANY_TOKEN) == 401
    assert refused(nobody, Asked(remote="10.0.0.1"), access.ANY_TOKEN) == 401


def test_a_browser_that_looks_ahead_changes_nothing() -> None:
    with pytest.raises(Refused, match="ahead of time"):
        access.check_origin(Asked(purpose="prefetch", fetch_site="none"))


def test_a_token_that_is_sent_is_looked_at_also_where_none_is_needed() -> None:
    """Who tries a token wants to know whether it is the right one."""
    assert refused(NEAR, bearer("wrong-" + SECRET, remote="127.0.0.1"), "lanes:read") == 401
    assert refused(NEAR, bearer(SECRET, remote="127.0.0.1"), "events:read") == 403


def test_a_token_is_good_for_its_permissions_only() -> None:
    assert access.admit(FAR, bearer(SECRET, method="POST"), "dead:purge") == "ops"
    assert refused(FAR, bearer(SECRET), "events:read") == 403


@pytest.mark.parametrize(
    "header",
    [
        "Bearer", "Bearer ", SECRET, f"Basic {SECRET}", f"Bearer {SECRET}x", f"Bearer {SECRET[:-1]}", "Bearer \xff",
        f"Bearer {OPS.sha256}", f"Bearer {SECRET} {SECRET}", f"Token {SECRET}",
    ],
)  # fmt: skip
def test_what_is_not_the_token_is_refused_with_a_challenge(header: str) -> None:
    """Its hash is not the token: who reads the file of tokens cannot use them."""
    with pytest.raises(Refused) as caught:
        access.admit(FAR, Asked(authorization=header), "lanes:read")
    assert (caught.value.status, caught.value.headers) == (401, access.CHALLENGE)
    assert SECRET not in caught.value.error + caught.value.todo


def test_a_token_of_any_characters_is_found_as_it_is_sent() -> None:
    """WSGI hands bytes over as Latin-1; the scheme is not case-sensitive."""
    odd = token("odd", "pässword-of-ünicode", "*")
    sent = "bearer " + "pässword-of-ünicode".encode().decode("latin-1")
    assert access.token_of([OPS, odd], sent) == odd
    assert access.token_of([OPS, odd], f"BEARER  {SECRET} ") == OPS


@pytest.mark.parametrize(
    ("pattern", "granted"),
    [
        ("*", set(PERMISSIONS)),
        ("dead:*", {"dead:read", "dead:replay", "dead:purge", "dead:skip", "dead:kill"}),
        ("*:read", {"lanes:read", "events:read", "dead:read"}),
        ("dead:re*", {"dead:read", "dead:replay"}),
        ("dead:kill", {"dead:kill"}),
        ("*:*", {permission for permission in PERMISSIONS if permission.count(":") == 1}),
        ("dead", set()),
        ("dead:*:*", set()),
        ("sys:job:*", {permission for permission in PERMISSIONS if permission.startswith("sys:job:")}),
        ("Dead:kill", set()),
    ],
)
def test_a_permission_is_a_pattern_part_by_part(pattern: str, granted: set[str]) -> None:
    """A star stays within its part, alone it is everything."""
    assert {permission for permission in PERMISSIONS if access.grants([pattern], permission)} == granted


@given(st.lists(st.text("dead:*lanesrkip", max_size=12), max_size=3), st.sampled_from(PERMISSIONS))
def test_only_a_star_or_the_name_itself_grants(patterns: list[str], permission: str) -> None:
    """Whatever a file of tokens holds."""
    if access.grants(patterns, permission):
        assert permission in patterns or any("*" in pattern for pattern in patterns)


# a listener that other machines reach


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "relay.internal"])
def test_without_a_token_a_listener_that_others_reach_serves_no_api(host: str) -> None:
    """Also not to this machine: a proxy may sit on it."""
    open_to_all = Admin(host=host)
    assert access.is_closed(open_to_all)
    assert refused(open_to_all, Asked(remote="127.0.0.1"), "lanes:read") == 403
    assert refused(open_to_all, bearer(SECRET), "lanes:read") == 403
    assert not access.is_closed(Admin(host=host, tokens=(OPS,)))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost", ""])
def test_a_listener_on_this_machine_only_needs_no_token(host: str) -> None:
    assert not access.is_closed(Admin(host=host))


# the header Host


def known(settings: Admin, host: str) -> bool:
    try:
        access.check_host(settings, host)
    except Refused as refusal:
        return refusal.status != 421
    return True


LOCAL = ["127.0.0.1:9464", "127.0.0.1", "localhost", "LocalHost:9464", "[::1]:9464", "[::1]", "localhost:8080"]
FOREIGN = ["evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example"]
NO_HOST = ["", ":9464", "127.0.0.1:", "127.0.0.1:x", "[::1", "::1", "a b", "user@127.0.0.1", "127.0.0.1/x", "[evil]"]


@pytest.mark.parametrize("host", LOCAL)
def test_a_listener_is_known_by_the_names_of_this_machine(host: str) -> None:
    """With any port: it may be forwarded from another one."""
    assert known(Admin(), host)
    assert known(Admin(host="0.0.0.0"), host)
    assert known(Admin(host="::1"), host)


@pytest.mark.parametrize("host", [*FOREIGN, *NO_HOST])
@pytest.mark.parametrize("listen", ["127.0.0.1", "0.0.0.0", "::", "10.1.2.3"])
def test_a_foreign_name_is_refused(listen: str, host: str) -> None:
    """A page that lets its name point to this machine asks under that name."""
    assert not known(Admin(host=listen), host)


@pytest.mark.parametrize("host", ["10.9.8.7:9464", "[fd00::2]:9464", "192.0.2.1"])
def test_a_listener_that_others_reach_is_known_by_any_address(host: str) -> None:
    """Probes and scrapes use the pod's; an address cannot be made to point elsewhere."""
    assert known(Admin(host="0.0.0.0"), host)
    assert known(Admin(host="10.1.2.3"), host)
    assert not known(Admin(), host)


def test_a_listener_is_known_by_its_own_name_and_the_configured_ones() -> None:
    assert known(Admin(host="relay.internal"), "Relay.Internal:9464")
    assert known(Admin(host="127.0.0.2"), "127.0.0.2:9464")
    assert known(Admin(hosts=("metrics.example", "[fd00::9]")), "metrics.example:443")
    assert known(Admin(hosts=("[fd00::9]",)), "[fd00::9]:9464")
    assert not known(Admin(host="relay.internal"), "localhost")


# pages of other sites


@pytest.mark.parametrize(
    ("origin", "site", "may"),
    [
        ("", "", True),
        ("http://127.0.0.1:9464", "same-origin", True),
        ("HTTP://127.0.0.1:9464", "", True),
        ("", "none", True),
        ("null", "", False),
        ("http://127.0.0.1", "", False),
        ("http://127.0.0.1:80", "", False),
        ("https://evil.example", "", False),
        ("", "cross-site", False),
        ("", "same-site", False),
        ("http://127.0.0.1:9464", "cross-site", False),
    ],
)
def test_a_change_from_a_page_of_another_site_is_refused(origin: str, site: str, may: bool) -> None:
    """Browsers say where a request comes from; programs do not."""
    asked = Asked(method="POST", host="127.0.0.1:9464", origin=origin, fetch_site=site)
    if may:
        access.check_origin(asked)
        return
    with pytest.raises(Refused) as caught:
        access.check_origin(asked)
    assert caught.value.status == 403
