"""The daemon and its commands with Tencent IM as the receiver, over TLS."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outboxd.event import DELIVERED, TLS, Retry
from tests.services.certificates import Certificates, make_certificates
from tests.services.cli import Cli
from tests.services.daemon import write_config
from tests.services.publishing import publish
from tests.services.tencent import TencentServer
from tests.services.tencent_rooms import APP, KEYS, OTHER_APP, OpensIm, room_event
from tests.services.tencent_state import ADMIN, Group

pytest_plugins = ["tests.services.databases", "tests.services.tencent_publishing"]

SECRET = "the-key-of-another-app"


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


@pytest.fixture
def secure(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Iterator[TencentServer]:
    """Tencent IM over TLS, with an authority that this system trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    with TencentServer(KEYS, certificates.server_context()) as server:
        yield server
        assert server.mistakes == []


def app(sdk_app_id: int, key: str) -> dict[str, object]:
    return {"sdk_app_id": sdk_app_id, "identifier": ADMIN, "secret_key": key}


def make_cli(tmp_path: Path, sqlite_url: str, url: str, other_key: str) -> Cli:
    apps = {"app": app(APP, KEYS[APP]), "other": app(OTHER_APP, other_key)}
    im = {"type": "tencent_im", "base_url": url, "apps": apps, "silent_events": ["RoomHeat*"], "connections": 2}
    config = tmp_path / "outbox.yaml"
    write_config(config, sqlite_url, {"im": im})
    return Cli(tmp_path, config)


def envelope(event_id: str, event_type: str) -> str:
    return json.dumps({"event_id": event_id, "event_type": event_type, "room_id": "r-1", "body": {"gift": 1}})


def enqueue(cli: Cli, event_id: str, event_type: str, app_code: str = "app") -> None:
    names = ("--type", event_type, "--room", "r-1", "--app", app_code, "--event-id", event_id)
    cli("enqueue", *names, envelope(event_id, event_type)).ok()


def test_the_daemon_delivers_to_tencent(tmp_path: Path, sqlite_url: str, secure: TencentServer) -> None:
    """From the file to the group, each tenant in its own app."""
    cli = make_cli(tmp_path, sqlite_url, secure.url, KEYS[OTHER_APP])
    for app_code in ("app", "other"):
        for event_type in ("RoomCreated", "RoomGiftSent", "RoomHeatChanged"):
            enqueue(cli, f"{event_type}-{app_code}", event_type, app_code)
    assert cli("run", "--until-empty").status == 0
    for sdk_app_id, app_code in ((APP, "app"), (OTHER_APP, "other")):
        assert [data["event_id"] for data in secure.apps[sdk_app_id].data("r-1")] == [f"RoomGiftSent-{app_code}"]


def test_check_has_a_line_for_it(tmp_path: Path, sqlite_url: str, secure: TencentServer) -> None:
    cli = make_cli(tmp_path, sqlite_url, secure.url, KEYS[OTHER_APP])
    cli("init-db").ok()
    assert "takes the signatures of 2 of 2 apps" in cli("check").ok()


def test_a_wrong_key_is_named_and_not_shown(tmp_path: Path, sqlite_url: str, secure: TencentServer) -> None:
    """G11: by no command, in no log, in no row."""
    cli = make_cli(tmp_path, sqlite_url, secure.url, SECRET)
    enqueue(cli, "e-1", "RoomGiftSent", "other")
    check = cli("check")
    assert check.status == 1
    assert "apps.'other': account_check: 70003" in check.out + check.err
    daemon = cli.start("run", stderr=-1, stdout=-1)
    until_s = time.monotonic() + 20
    while "70003" not in (told := cli("explain", "e-1").out):
        assert time.monotonic() < until_s, told
    daemon.terminate()
    out, err = daemon.communicate(timeout=20)
    signature = secure.asked[-1].query["usersig"]
    for text in (check.out, check.err, told, out, err):
        assert SECRET not in text
        assert signature[:20] not in text


def test_a_host_that_cannot_prove_who_it_is_gets_nothing(
    secure: TencentServer, server: TencentServer, opens_im: OpensIm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G6: a name server that was tampered with leads to a stranger. It never sees a signature; the backup host does."""
    monkeypatch.delenv("SSL_CERT_FILE")
    outcome = publish(opens_im(hosts=(secure.url,)), room_event())
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (TLS, False)
    server.apps[APP].groups["room-1"] = Group("ChatRoom", "", "room-1")
    assert publish(opens_im(hosts=(secure.url, server.url)), room_event()) is DELIVERED
    assert secure.asked == []
