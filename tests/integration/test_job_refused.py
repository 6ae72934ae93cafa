"""Addresses that a job may not call, however they are written, and TLS that is not as it should be."""

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.certificates import make_certificates
from tests.services.dead_ends import dripping
from tests.services.find import outside_address, require
from tests.services.job_calls import call, failure
from tests.services.receiver import Receiver
from tests.services.wait import wait_for


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        receiver.answer(status=200, body="hello")
        yield receiver


LOOPBACK = ["127.0.0.1", "localhost", "127.1", "0x7f.1", "0x7f000001", "2130706433", "0177.0.0.1", "[::ffff:127.0.0.1]"]


@pytest.mark.parametrize("host", LOOPBACK)
def test_a_private_address_is_refused_however_it_is_written(receiver: Receiver, host: str) -> None:
    """A name that stands for one, too. Nobody is connected to."""
    found = failure(f"http://{host}:{receiver.port}/", allow_private=False)
    assert found.startswith("the call was refused: ")
    assert "is a private address, and jobs.allow_private_targets is false" in found
    assert receiver.accepted == 0


@pytest.mark.parametrize("host", LOOPBACK)
def test_private_addresses_may_be_called_by_default(receiver: Receiver, host: str) -> None:
    """The same ones are reached."""
    assert call(f"http://{host}:{receiver.port}/") == "200 hello"


def test_this_machine_is_private_by_its_other_address_and_by_its_name(receiver: Receiver) -> None:
    """0.0.0.0 is this machine as well."""
    address = require("network", outside_address(), "this machine has no address but the loopback one")
    for host in (address, "0.0.0.0", "[::]", "[::1]"):
        assert "is a private address" in failure(f"http://{host}:{receiver.port}/", allow_private=False)


@pytest.mark.parametrize("allow_private", [True, False])
@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254", "0xa9fea9fe", "2852039166", "0251.0376.0251.0376", "169.254.43518", "100.100.100.200",
        "168.63.129.16", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[fe80::1]", "[fd00:ec2::254]",
        "[64:ff9b::169.254.169.254]", "[2002:a9fe:a9fe::1]",
    ],
)  # fmt: skip
def test_where_clouds_keep_credentials_is_always_refused(host: str, allow_private: bool) -> None:
    """At once: nothing is sent there, and nothing waited for."""
    began_s = time.monotonic()
    found = failure(f"http://{host}/latest/meta-data/", allow_private=allow_private)
    assert "is link-local, or where clouds keep credentials: no job may call it" in found
    assert time.monotonic() - began_s < 2


@pytest.mark.parametrize(
    ("name", "trusted", "words"),
    [
        ("DNS:localhost", True, None),
        ("DNS:elsewhere.example", True, "TLS failed"),
        ("DNS:localhost", False, "TLS failed"),
    ],
)
def test_a_certificate_must_be_for_the_name_and_of_an_authority_that_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, trusted: bool, words: str | None
) -> None:
    """The name in the URL, whatever address it stands for."""
    certificates = make_certificates(tmp_path, name)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    with Receiver(tls=certificates.server_context()) as receiver:
        receiver.answer(status=200, body="hello")
        url = f"https://localhost:{receiver.port}/"
        if words is None:
            assert call(url) == "200 hello"
        else:
            assert words in failure(url)
            assert receiver.requests == []


def test_a_certificate_that_has_expired_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason."""
    certificates = make_certificates(tmp_path, server_days=0)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    end_s = ssl.cert_time_to_seconds(str(ssl._ssl._test_decode_cert(str(certificates.server))["notAfter"]))  # type: ignore[attr-defined]
    wait_for(lambda: time.time() > end_s + 1, 10, "the certificate to expire")
    with Receiver(tls=certificates.server_context()) as receiver:
        assert "certificate has expired" in failure(receiver.url)
        assert receiver.requests == []


def test_a_server_without_tls_is_a_failure() -> None:
    """It is not asked in the clear."""
    with dripping(b"HTTP/1.1 200 OK\r\n\r\n", every_s=1) as port:
        assert "TLS failed" in failure(f"https://127.0.0.1:{port}/")
