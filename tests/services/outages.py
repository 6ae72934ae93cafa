"""Receivers that break down in every way there is, and come back."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.services.certificates import make_certificates
from tests.services.find import free_port
from tests.services.names import name_service
from tests.services.receiver import Receiver


@dataclass(frozen=True)
class Outage:
    """A receiver and how it breaks down. settings: of a publisher to it. asked: how often it was tried so far; None
    where nobody can count that (a connection that is refused)."""

    receiver: Receiver
    settings: dict[str, object]
    begin: Callable[[], None]
    end: Callable[[], None]
    asked: Callable[[], int] | None


def _answering(**behaviour: object) -> Outage:
    """It answers everything so."""
    receiver = Receiver()
    return Outage(
        receiver,
        {"url": receiver.url},
        lambda: receiver.answer(**behaviour),  # type: ignore[arg-type]
        receiver.rules.clear,
        lambda: len(receiver.requests),
    )


def _refusing() -> Outage:
    """Nobody listens."""
    receiver = Receiver(port=free_port())  # which no client can be given meanwhile

    def begin() -> None:
        receiver.refuse()
        receiver.cut()

    return Outage(receiver, {"url": receiver.url}, begin, receiver.listen_again, None)


def _untrusted(directory: Path) -> Outage:
    """Its certificate is from an authority that the publisher does not know."""
    names = ("known", "unknown")
    for name in names:
        (directory / name).mkdir()
    known, unknown = (make_certificates(directory / name) for name in names)
    good, bad = known.server_context(), unknown.server_context()
    receiver = Receiver(tls=good)

    def begin() -> None:
        receiver.tls = bad
        receiver.cut()

    def end() -> None:
        receiver.tls = good

    return Outage(
        receiver, {"url": receiver.url, "ca_file": str(known.authority)}, begin, end, lambda: receiver.accepted
    )


def _nameless(directory: Path) -> Outage:
    """Its name cannot be looked up."""
    receiver = Receiver()
    answers, asked = directory / "answers", directory / "asked"
    answers.touch()

    def begin() -> None:
        answers.unlink()
        receiver.cut()

    url = f"http://moody.invalid:{receiver.port}/"
    return Outage(
        receiver, {"url": url}, begin, answers.touch, lambda: asked.stat().st_size if asked.exists() else 0
    )


@contextmanager
def outages(directory: Path) -> Iterator[tuple[dict[str, Outage], dict[str, str]]]:
    """One of each kind, whose receivers run and still work, and the environment that the daemon must have."""
    environ = name_service(directory)
    kinds = {
        "refused": _refusing(),
        "status_503": _answering(status=503),
        "status_500": _answering(status=500),
        "hanging": _answering(hang=True),
        "tls": _untrusted(directory),
        "dns": _nameless(directory),
    }
    with ExitStack() as stack:
        for outage in kinds.values():
            stack.enter_context(outage.receiver)
        yield kinds, environ
