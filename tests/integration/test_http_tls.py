"""TLS of the HTTP publisher, and what `check` finds out about a receiver without sending an event."""

import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outboxd.config.schema import Http
from outboxd.errors import PublisherError
from outboxd.event import DELIVERED, Retry
from outboxd.publishers import check, open_publisher
from tests.services.certificates import Certificates, make_certificates
from tests.services.dead_ends import dripping
from tests.services.find import free_port
from tests.services.publishing import Opens, make_event, publish, publish_all
from tests.services.receiver import Receiver

pytest_plugins = ["tests.services.http_publishing"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def receiver(certificates: Certificates) -> Iterator[Receiver]:
    """Speaks TLS; in this file `opens` makes publishers to it."""
    with Receiver(tls=certificates.server_context()) as receiver:
        yield receiver


@pytest.fixture
def serve() -> Iterator[Callable[[ssl.SSLContext], Receiver]]:
    """Further receivers, with a context of their own."""
    started: list[Receiver] = []

    def start(context: ssl.SSLContext) -> Receiver:
        started.append(Receiver(tls=context).__enter__())
        return started[-1]

    yield start
    for receiver in started:
        receiver.__exit__()


def assert_tls_is_blamed(outcome: object, words: str) -> None:
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == ("tls", False)
    assert words in outcome.error


def test_events_go_over_verified_tls(receiver: Receiver, opens: Opens, certificates: Certificates) -> None:
    """Kept connections too, and a body of many records."""
    publisher = opens(ca_file=str(certificates.authority))
    events = [make_event(envelope=b"x" * size) for size in (0, 10, 1_000_000, *range(100))]
    assert [outcome for _, outcome in publish_all(publisher, events)] == [DELIVERED] * len(events)
    assert len(receiver.requests) == len(events)
    assert receiver.accepted < 10


def test_an_authority_that_nobody_named_is_not_trusted(receiver: Receiver, opens: Opens) -> None:
    """Verification is always on; nothing reaches the receiver."""
    assert_tls_is_blamed(publish(opens(), make_event()), "certificate")
    assert receiver.requests == []


def test_a_certificate_for_another_name_is_not_accepted(
    opens: Opens, serve: Callable[[ssl.SSLContext], Receiver], tmp_path: Path
) -> None:
    """The authority is right, the name is not."""
    wrong = make_certificates(tmp_path, server_name="DNS:elsewhere.test")
    receiver = serve(wrong.server_context())
    publisher = opens(url=receiver.url, ca_file=str(wrong.authority))
    assert_tls_is_blamed(publish(publisher, make_event()), "127.0.0.1")
    assert receiver.requests == []


def test_a_client_certificate_is_shown_where_it_is_wanted(
    opens: Opens, serve: Callable[[ssl.SSLContext], Receiver], certificates: Certificates
) -> None:
    """With it the event is delivered; without it that is a configuration's fault, not the event's (G6)."""
    receiver = serve(certificates.server_context(wants_client=True))
    url, authority = receiver.url, str(certificates.authority)
    own = {"client_cert_file": str(certificates.client), "client_key_file": str(certificates.client_key)}
    shown = opens(url=url, ca_file=authority, **own)  # type: ignore[arg-type]  # not publish_timeout_s
    assert publish(shown, make_event()) is DELIVERED
    outcome = publish(opens(url=url, ca_file=authority), make_event())
    assert isinstance(outcome, Retry)
    # The refusal may be overtaken by the end of the connection, into which nothing could be sent then.
    assert (outcome.reason, outcome.counted) in {("tls", False), ("connect", False)}
    assert len(receiver.requests) == 1


def test_a_receiver_that_speaks_no_tls_is_to_blame(opens: Opens) -> None:
    """An https URL with the port of plain HTTP."""
    with Receiver() as plain:
        assert_tls_is_blamed(publish(opens(url=f"https://127.0.0.1:{plain.port}/"), make_event()), "not sent")
        assert plain.requests == []


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x03\x40\x00"], ids=["silent", "dripping"])
def test_a_handshake_that_does_not_end_is_given_up_in_time(opens: Opens, first: bytes) -> None:
    """G4, G6: nothing was sent, so it is no fault of the event. dripping: a record of 16 KiB, a byte at a time."""
    with dripping(first, every_s=0.05 if first else 60) as port:
        publisher = opens(publish_timeout_s=0.9, url=f"https://127.0.0.1:{port}/")
        start_s = time.monotonic()
        outcome = publish(publisher, make_event(), timeout_s=0.9)
        assert time.monotonic() - start_s < 0.9 + 0.2
    assert_tls_is_blamed(outcome, "not sent")


def settings(receiver: Receiver, **changes: object) -> Http:
    return Http(**{"name": "web", "url": receiver.url, **changes})  # type: ignore[arg-type]


def test_check_connects_without_sending_an_event(receiver: Receiver, certificates: Certificates) -> None:
    """One line, with the address."""
    line = check(settings(receiver, ca_file=str(certificates.authority)), 2.0)
    assert line == f"{receiver.url} connects (127.0.0.1 port {receiver.port}, TLS verified)"
    assert receiver.requests == []


def test_check_says_why_it_cannot_connect(receiver: Receiver, certificates: Certificates) -> None:
    """Refused, no such name, not trusted; without the URL's secrets (G11)."""
    with pytest.raises(PublisherError, match="certificate"):
        check(settings(receiver), 2.0)
    hidden = f"http://user:hunter2@127.0.0.1:{free_port()}/x?token=hunter3"
    with pytest.raises(PublisherError, match="cannot connect to http://") as raised:
        check(settings(receiver, url=hidden), 2.0)
    assert "hunter" not in str(raised.value)
    with pytest.raises(PublisherError, match="resolve"):
        check(settings(receiver, url="http://no-such-host.invalid/"), 2.0)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"ca_file": "/no/such.pem"}, "web.ca_file: cannot use /no/such.pem: No such file or directory"),
        ({"ca_file": __file__}, "web.ca_file: cannot use .*: not a valid PEM file"),
        ({"client_cert_file": "/no/such.pem"}, "web.client_cert_file: cannot use /no/such.pem"),
        ({"client_key_file": "/no/such.pem"}, "of no use without client_cert_file"),
        ({"url": "ftp://host/"}, "must be http:// or https://"),
        ({"url": "https:///path"}, "must be http:// or https://"),
        ({"url": "https://host:notaport/"}, "must be http:// or https://"),
        ({"url": "https://höst/"}, "percent-encoded"),
        ({"url": "https://host/a b\r\n"}, "percent-encoded"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(receiver: Receiver, changes: dict[str, object], problem: str) -> None:
    """By the worker and by `check` alike, naming the key."""
    with pytest.raises(PublisherError, match=problem):
        open_publisher(settings(receiver, **changes), "lane", 1.0)
    with pytest.raises(PublisherError, match=problem):
        check(settings(receiver, **changes), 1.0)
