"""What a stored error text says: whom the failure is blamed on, and what a person can do. Pure.

The relay writes the text (publishers/http_answer.py, relay/policy.py and their neighbours); the tests send every answer
through it and see that what is told here is what happened.
"""

import re

from outboxd.config.schema import Console, Http, PublisherSettings, PythonCallable, TencentIm
from outboxd.event import MISCONFIGURED as MISCONFIGURED_REASON
from outboxd.event import Dead, Retry
from outboxd.explain.verdict_texts import CONFIGURATION, EVENT, OPERATOR, RECEIVER, WORKER, Verdict, by_words
from outboxd.tencent.codes import failure_of
from outboxd.tencent.course import AT_ODDS

__all__ = ["CONFIGURATION", "EVENT", "OPERATOR", "RECEIVER", "WORKER", "Verdict", "verdict"]

MISCONFIGURED = {
    401: "check `publishers.{name}.authorization_file`",
    403: "allow it at the receiver, or check the credentials of `publishers.{name}`",
    404: "check `publishers.{name}.url`",
    405: "check `publishers.{name}.url`",
    410: "check `publishers.{name}.url`",
    415: "check `publishers.{name}.format` and the content_type that the producer writes",
}
REDIRECT = "redirects are not followed: put the final address into `publishers.{name}.url`"
UNAVAILABLE = frozenset({502, 503, 504})

_HTTP = re.compile(r"HTTP (\d{3})\b")
_TENCENT_AT = re.compile(r"(?:.*; )?\w+ at \S+: ")
_TENCENT_CODE = re.compile(r"\w+: (-?\d+)\b")
_PARKED = re.compile(r"waiting for (\w+), which (is failing|is slow|asked for a pause of (\d+) s)")


def verdict(error: str, publishers: dict[str, PublisherSettings]) -> Verdict:
    """Read the error text of an event of a lane with these publishers."""
    for prefix, blame, says in _WRAPPED:
        if error.startswith(prefix):
            return Verdict(blame, says)
    name, text = _publisher_of(error, publishers)
    settings = publishers.get(name)
    if found := _PARKED.search(text):
        return _parked(found, text)
    if text.startswith("held, since the receiver refuses everything: "):
        says = f"{name} refused many different events in a row, which looks like its own fault, so this one is held"
        return Verdict(RECEIVER, says, f"look at {name}: it is asked again and again with one event", name, parked=True)
    if isinstance(settings, TencentIm):
        if found := _TENCENT_CODE.match(text):
            return _tencent_code(int(found[1]), text, name)
        if found := _TENCENT_AT.match(text):  # which call, and which host
            text = text[found.end() :]
    if found := _HTTP.match(text):
        return _answered(int(found[1]), name, settings)
    return by_words(text, name, settings) or _other(name, settings)


def _publisher_of(error: str, publishers: dict[str, PublisherSettings]) -> tuple[str, str]:
    """Whose words these are, and the words: with several publishers each text begins with a name."""
    name, colon, rest = error.partition(": ")
    if colon and name in publishers and len(publishers) > 1:
        return name, rest
    return (next(iter(publishers)) if len(publishers) == 1 else ""), error


def _parked(found: re.Match[str], text: str) -> Verdict:
    name = found[1]
    if found[3]:
        return Verdict(
            RECEIVER, f"{name} asked for a pause of {found[3]} s, so it was not tried", "", name, parked=True
        )
    says = f"{name} {found[2]}, so it was not tried"
    return Verdict(
        RECEIVER, says, f"look at {name}: probes are sent to it, and it goes on by itself", name, parked=True
    )


def _answered(status: int, name: str, settings: PublisherSettings | None) -> Verdict:
    permanent = settings.permanent_statuses if isinstance(settings, Http) else frozenset({400, 413, 422})
    if isinstance(settings, TencentIm):
        permanent = frozenset()
    who = name or "the receiver"
    if status in permanent:
        says = f"{who} answered {status}: it can never accept this event"
        return Verdict(EVENT, says, "correct the receiver (or the producer), then replay it", name, is_final=True)
    if status == 429:
        says = f"{who} answered 429: it wants fewer events at a time"
        return Verdict(RECEIVER, says, f"if it stays so, set `publishers.{name}.max_rate`", name)
    if status in UNAVAILABLE:
        return Verdict(RECEIVER, f"{who} answered {status}: it, or a proxy before it, is out of service", "", name)
    if status in MISCONFIGURED or 300 <= status < 400:
        says = f"{who} answered {status}: it refuses us, whatever the event is"
        todo = MISCONFIGURED.get(status, REDIRECT)
        if isinstance(settings, TencentIm):
            todo = "check `publishers.{name}.region`, or its base_url"
        return Verdict(CONFIGURATION, says, todo.format(name=name), name)
    return Verdict(EVENT, f"{who} answered {status}: it failed while it handled this event", "", name)


def _tencent_code(code: int, text: str, name: str) -> Verdict:
    """Tencent IM answered with this code, and nothing more could be tried against it."""
    who = name or "the receiver"
    says = f"{who} answered with Tencent's code {code}"
    outcome = failure_of(code, text)
    if isinstance(outcome, Dead) and not text.endswith(AT_ODDS):
        return Verdict(EVENT, f"{says}: it can never accept this event", "see docs/tencent-im.md", name, is_final=True)
    if isinstance(outcome, Retry) and outcome.reason == MISCONFIGURED_REASON:
        todo = f"check `publishers.{name}.apps` and the app's console at Tencent"
        return Verdict(CONFIGURATION, f"{says}: it refuses us, whatever the event is", todo, name)
    if isinstance(outcome, Retry) and not outcome.counted:
        return Verdict(RECEIVER, f"{says}: it wants fewer calls at a time", f"see `publishers.{name}.max_rate`", name)
    return Verdict(EVENT, f"{says}: it failed while it handled this event", "", name)


def _other(name: str, settings: PublisherSettings | None) -> Verdict:
    if isinstance(settings, PythonCallable):
        return Verdict(EVENT, f"{settings.target} raised an exception", "", name)
    if isinstance(settings, Console):
        return Verdict(RECEIVER, "standard output could not be written", "see that something reads it", name)
    return Verdict(EVENT, "publishing it failed", "", name)


_WRAPPED = (
    ("outbox retry limit exceeded: ", WORKER, "its attempts were used up before it could be published once more"),
    ("killed by ", OPERATOR, "a person ended it with `outboxd dead kill`"),
)
