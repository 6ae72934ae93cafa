"""Tencent IM away, slow or hostile: deadlines, the backup host, secrets."""

import time
from collections.abc import Iterator

import pytest

from outboxd.config.schema import TencentApp
from outboxd.errors import PublisherError
from outboxd.event import CONNECT, DELIVERED, DNS, MISCONFIGURED, PARKED, RESET, SERVER_ERROR, TIMEOUT, Retry
from outboxd.publishers import check
from tests.services.dead_ends import full_backlog
from tests.services.find import free_port
from tests.services.publishing import collect, make_event, publish, publish_all
from tests.services.tencent import TencentServer, read_usersig
from tests.services.tencent_rooms import APP, KEYS, OpensIm, apps_of, im_settings, room_event
from tests.services.tencent_state import CREATE, SEND, Group

pytest_plugins = ["tests.services.tencent_publishing"]

TOLERANCE_S = 1.0


@pytest.fixture
def backup() -> Iterator[TencentServer]:
    """Another address of the same Tencent IM."""
    with TencentServer(KEYS) as server:
        yield server
        assert server.mistakes == []


def with_room(server: TencentServer) -> None:
    server.apps[APP].groups["room-1"] = Group("ChatRoom", "", "room-1")


@pytest.mark.parametrize(
    "behaviour",
    [
        {"hang": True},
        {"status": 200, "body": b'{"ErrorCode": 0}', "drip_s": 0.2},
        {"status": 200, "announced_bytes": -1, "repeat": b" ", "repeat_every_s": 0.05},
    ],
    ids=["hangs", "drips", "never ends"],
)
def test_a_publish_ends_at_its_deadline(server: TencentServer, opens_im: OpensIm, behaviour: dict[str, object]) -> None:
    """G4: whatever the far side does."""
    server.behave(SEND, **behaviour)  # type: ignore[arg-type]
    start_s = time.monotonic()
    outcome = publish(opens_im(), room_event(), timeout_s=0.8)
    assert 0.7 < time.monotonic() - start_s < 0.8 + TOLERANCE_S
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (TIMEOUT, True)


def test_an_endless_body_is_cut_by_its_length(server: TencentServer, opens_im: OpensIm) -> None:
    """G9: before the deadline, and before it fills the memory."""
    server.behave(SEND, status=200, announced_bytes=-1, repeat=b" " * 10_000)
    outcome = publish(opens_im(), room_event(), timeout_s=10)
    assert isinstance(outcome, Retry)
    assert (outcome.reason, "longer than 65536 bytes" in outcome.error) == (SERVER_ERROR, True)


def test_all_calls_of_an_event_share_one_deadline(server: TencentServer, opens_im: OpensIm) -> None:
    """G4: a send, a creation and a second send, each of them slow but in time by itself."""
    server.behave(None, status=200, delay_s=0.5, body=b'{"ErrorCode": 10010}')
    server.behave(CREATE, status=200, delay_s=0.5, body=b'{"ErrorCode": 0}')
    start_s = time.monotonic()
    outcome = publish(opens_im(), room_event(), timeout_s=0.8)
    assert time.monotonic() - start_s < 0.8 + TOLERANCE_S
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted, CREATE in outcome.error) == (TIMEOUT, True, True)


@pytest.mark.parametrize(("close", "reason"), [("before_answer", RESET), ("reset", RESET), ("mid_answer", RESET)])
def test_a_connection_that_ends_early_is_no_reason_to_send_again(
    server: TencentServer, opens_im: OpensIm, backup: TencentServer, close: str, reason: str
) -> None:
    """G1: the message may have been taken; the next attempt is the relay's, with the same Random."""
    server.behave(SEND, close=close, status=200, body=b'{"ErrorCode": 0, "x": "xxxxxxxxxxxx"}')
    outcome = publish(opens_im(hosts=(server.url, backup.url)), room_event())
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (reason, True)
    assert (server.commands(), backup.commands()) == ([SEND], [])


def test_a_dead_kept_alive_connection_sends_nothing_twice(server: TencentServer, opens_im: OpensIm) -> None:
    """G1: curl would repeat a request that it can rewind."""
    with_room(server)
    publisher = opens_im(connections=1)
    assert publish(publisher, room_event()) is DELIVERED
    server.behave(SEND, times=1, close="before_answer")
    assert isinstance(publish(publisher, room_event()), Retry)
    assert server.commands() == [SEND, SEND]


def test_the_backup_host_is_asked_where_the_main_one_cannot_be_reached(
    backup: TencentServer, opens_im: OpensIm
) -> None:
    """And first from then on: the next event does not run into the same wall."""
    with_room(backup)
    publisher = opens_im(hosts=(f"http://127.0.0.1:{free_port()}", backup.url))
    outcomes = publish_all(publisher, [room_event() for _ in range(20)])
    assert [outcome for _, outcome in outcomes] == [DELIVERED] * 20
    assert backup.commands() == [SEND] * 20


def test_a_main_host_that_is_gone_leaves_the_backup_time_to_answer(backup: TencentServer, opens_im: OpensIm) -> None:
    """G4: nothing refuses the connection, it just does not come about."""
    with_room(backup)
    backup.behave(SEND, times=1, status=200, delay_s=0.2, body=b'{"ErrorCode": 0}')
    with full_backlog() as port:
        publisher = opens_im(hosts=(f"http://127.0.0.1:{port}", backup.url), publish_timeout_s=6.0)
        assert publish(publisher, room_event(), timeout_s=6.0) is DELIVERED
        start_s = time.monotonic()
        assert publish(publisher, room_event(), timeout_s=6.0) is DELIVERED
        assert time.monotonic() - start_s < 1.8, "the next one does not wait for the main host"


def test_the_main_host_is_asked_again_when_the_backup_fails_in_its_turn(
    server: TencentServer, backup: TencentServer, opens_im: OpensIm
) -> None:
    with_room(server)
    with_room(backup)
    publisher = opens_im(hosts=(server.url, backup.url))
    server.receiver.refuse()
    assert publish(publisher, room_event()) is DELIVERED
    server.receiver.listen_again()
    assert publish(publisher, room_event()) is DELIVERED
    assert (server.commands(), backup.commands()) == ([], [SEND, SEND])
    backup.receiver.refuse()
    backup.receiver.cut()
    outcomes = [publish(publisher, room_event()) for _ in range(3)]
    assert outcomes[1:] == [DELIVERED, DELIVERED], outcomes
    assert server.commands()[-2:] == [SEND, SEND]


def test_an_event_whose_time_is_over_before_it_is_sent_is_not_to_blame(
    server: TencentServer, opens_im: OpensIm
) -> None:
    """G6: the worker was held up. Nothing leaves (G4)."""
    publisher = opens_im()
    assert publisher.submit(room_event(), time.monotonic() - 0.1)
    ((_, outcome),) = collect(publisher, 1)
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (PARKED, False)
    assert server.asked == []


def test_no_time_for_the_backup_host_is_the_fault_of_the_main_one(backup: TencentServer, opens_im: OpensIm) -> None:
    """G6: all the time went into a connection that did not come about."""
    with full_backlog() as port:
        publisher = opens_im(hosts=(f"http://127.0.0.1:{port}", backup.url))
        outcome = publish(publisher, room_event(), timeout_s=0.3)
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (CONNECT, False)
    assert backup.asked == []


def test_without_any_host_the_event_is_not_to_blame(opens_im: OpensIm) -> None:
    """G6: both are named."""
    ports = free_port(), free_port()
    publisher = opens_im(hosts=tuple(f"http://127.0.0.1:{port}" for port in ports))
    outcome = publish(publisher, room_event())
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (CONNECT, False)
    assert [port for port in ports if f"at 127.0.0.1:{port}" not in outcome.error] == []


def test_a_host_without_an_address_is_not_the_events_fault(opens_im: OpensIm) -> None:
    """G6."""
    outcome = publish(opens_im(hosts=("http://no-such-host.invalid",)), room_event())
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (DNS, False)


def test_a_signature_that_is_made_invalid_is_renewed_for_all_events(server: TencentServer, opens_im: OpensIm) -> None:
    """An administrator revoked all that were made until now: the events in flight notice, and none is lost."""
    with_room(server)
    publisher = opens_im()
    assert publish(publisher, room_event()) is DELIVERED
    old = server.asked[-1].query["usersig"]
    made_s = read_usersig(old)["TLS.time"]
    while int(time.time()) <= made_s:  # a signature tells whole seconds
        publish(publisher, make_event(app_code="stranger"))
    server.apps[APP].invalid_before = made_s + 1
    outcomes = publish_all(publisher, [room_event() for _ in range(20)])
    assert [outcome for _, outcome in outcomes] == [DELIVERED] * 20
    used = [asked.query["usersig"] for asked in server.asked[1:]]
    assert 0 < used.count(old) <= 4, "only what was in flight, one for each connection"
    assert len(set(used) - {old}) == 1


def test_no_secret_is_in_an_error(server: TencentServer, opens_im: OpensIm) -> None:
    """G11: neither the key nor the signature, which is as good as the key, though the far side sends them back."""
    app = TencentApp(sdk_app_id=APP, identifier="administrator", secret_key="not-the-right-key")
    publisher = opens_im(apps={"app": app})
    outcome = publish(publisher, room_event())
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (MISCONFIGURED, False)
    signature = server.asked[-1].query["usersig"]
    echo = f"key not-the-right-key in https://h/v4?usersig={signature} or {signature}"
    errors = [outcome.error]
    cut = f"{'x' * 150}{signature}"  # where only a part of it would be shown, that part is hidden too
    answers = [(status, body) for status in (500, 403, 200) for body in (echo, cut)]
    for status, body in answers:
        server.forget_rules()
        server.behave(SEND, status=status, body=body)
        server.apps[APP].key = "not-the-right-key"
        failed = publish(publisher, room_event())
        assert isinstance(failed, Retry)
        errors.append(failed.error)
    server.forget_rules()
    server.answer(SEND, 10002, info=echo)
    failed = publish(publisher, room_event())
    assert isinstance(failed, Retry)
    errors.append(failed.error)
    assert [error for error in errors if "not-the-right-key" in error or signature[:20] in error] == []
    assert all("***" in error for error in errors[1:])
    assert signature not in repr(app)


def test_check_says_what_is_wrong(server: TencentServer, backup: TencentServer) -> None:
    """Away, hung, or no Tencent IM at all; the backup host is good enough."""
    away = f"http://127.0.0.1:{free_port()}"
    assert check(im_settings(away, backup.url), 5.0).startswith(f"{backup.url} takes the signatures of 2 of 2 apps")
    with pytest.raises(PublisherError, match=f"cannot ask {away}"):
        check(im_settings(away), 5.0)
    server.behave(None, status=404, body="nothing here")
    with pytest.raises(PublisherError, match="HTTP 404: nothing here"):
        check(im_settings(server.url), 5.0)
    server.behave(None, status=200, body="<html>")
    with pytest.raises(PublisherError, match="no answer of Tencent IM"):
        check(im_settings(server.url), 5.0)
    server.behave(None, hang=True)
    start_s = time.monotonic()
    with pytest.raises(PublisherError, match="cannot ask"):
        check(im_settings(server.url, apps=apps_of(app=APP)), 0.5)
    assert time.monotonic() - start_s < 0.5 + TOLERANCE_S
