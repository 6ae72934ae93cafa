"""How the texts of failures begin, and what each means. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from outboxd.config.schema import ActivityGrpc, Kafka, PublisherSettings, RedisStreams, RocketLaunch, RocketMq
from outboxd.event import BLAMELESS, CONNECT, DNS, MISCONFIGURED, REJECTION, THROTTLED, TLS, UNAVAILABLE

EVENT, RECEIVER, CONFIGURATION, WORKER, OPERATOR = "event", "receiver", "configuration", "worker", "operator"
"""Whom a failure is blamed on. Only failures blamed on the event, or on a worker that died with it, use up attempts."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """blame: one of the above. says: what happened, a sentence. todo: what a person can do, "" if nothing need be
    done. publisher: whom the text is about, "" if nobody. is_final: this very answer ends the event's life. is_invalid:
    no request can be made of it, so that a replay of it as it is dies again. parked: it was not even tried.
    """

    blame: str
    says: str
    todo: str = ""
    publisher: str = ""
    is_final: bool = False
    is_invalid: bool = False
    parked: bool = False


def by_words(text: str, name: str, settings: PublisherSettings | None) -> Verdict | None:
    """By how the text begins; None: it is not known."""
    for starts, judge in _TEXTS:
        if text.startswith(starts):
            return judge(name)
    if text.startswith(BLAMELESS[MISCONFIGURED]):
        says = f"{name or 'the receiver'} refuses us, whatever the event is"
        return Verdict(CONFIGURATION, says, _refused(settings).format(name=name), name)
    return None


def _refused(settings: PublisherSettings | None) -> str:
    """What to look at when a receiver refuses its caller."""
    match settings:
        case RedisStreams():
            return "check user and password of `redis`, that user's rights, and the key `publishers.{name}.stream`"
        case Kafka():
            return "check that `publishers.{name}.topic` exists, the credentials in its options, and the rights there"
        case RocketMq() | RocketLaunch(carrier="rocketmq"):
            return "check the keys in `rocketmq`, and at the server the topic of {name}: its type, and the rights to it"
        case RocketLaunch():
            return "check user and password of `redis`, that user's rights, and the key `publishers.{name}.key`"
        case ActivityGrpc():
            return "check that `publishers.{name}.target` is the right service, and lets us in"
    return "check `publishers.{name}`"


def _transport(
    blame: str, says: str, todo: str = "", *, parked: bool = False, is_final: bool = False, is_invalid: bool = False
) -> Callable[[str], Verdict]:
    told = Verdict(blame, says, todo, is_final=is_final or is_invalid, is_invalid=is_invalid, parked=parked)

    def judge(name: str) -> Verdict:
        who = name or "the receiver"
        return replace(told, says=says.format(who=who), todo=todo.format(name=name, who=who), publisher=name)

    return judge


_UNREACHED = "the request never reached {who}"
_UNANSWERED = ", so it may have handled the event all the same (it will see the same event_id again)"
_TEXTS: tuple[tuple[tuple[str, ...], Callable[[str], Verdict]], ...] = (
    (
        ("no app for app_code ",),
        _transport(CONFIGURATION, "{who} has no app for its app_code", "add it to `publishers.{name}.apps`"),
    ),
    (
        ("protobuf is not installed",),
        _transport(CONFIGURATION, "its envelope is protobuf, whose library is missing", "pip install 'outboxd[grpc]'"),
    ),
    (
        (BLAMELESS[TLS],),
        _transport(
            RECEIVER, "no secure connection to {who} came about", "check its certificate and `publishers.{name}`"
        ),
    ),
    (
        ("Could not resolve ", "Couldn't resolve ", BLAMELESS[DNS]),
        _transport(
            RECEIVER,
            "the host name of {who} is not known",
            "check its address in `publishers.{name}` and the name server",
        ),
    ),
    (
        ("Failed to connect ", "Could not connect ", "Couldn't connect ", "connect to ", BLAMELESS[CONNECT]),
        _transport(RECEIVER, _UNREACHED + ": nothing took the connection", "see that {who} is up"),
    ),
    (
        ("no acknowledgement from ",),
        _transport(RECEIVER, "{who} has not acknowledged anything yet", "see that {who} is up, and reachable"),
    ),
    (
        (BLAMELESS[UNAVAILABLE],),
        _transport(RECEIVER, "{who} is there, but cannot take events now", "the error says why: see to {who}"),
    ),
    (
        (BLAMELESS[THROTTLED],),
        _transport(
            RECEIVER,
            "{who} is busy: it wants fewer events at a time",
            "if it stays so, set `publishers.{name}.max_rate`",
        ),
    ),
    (
        (REJECTION, "later than the broker allows"),
        _transport(
            EVENT,
            "{who} refused this event: it can never accept it",
            "correct the receiver (or the producer), then replay it",
            is_final=True,
        ),
    ),
    (
        ("MSG_SIZE_TOO_LARGE: ", "RECORD_LIST_TOO_LARGE: ", "INVALID_RECORD: "),
        _transport(
            EVENT,
            "{who} refused the batch in which it was, and does not say which event of it is meant",
            "compare its size with the topic's max.message.bytes, and how the topic is set up",
        ),
    ),
    (("the request was not sent: ",), _transport(RECEIVER, _UNREACHED, "see that {who} is up and reachable")),
    (
        ("no complete answer in time", "_MSG_TIMED_OUT: ", "DEADLINE_EXCEEDED: "),
        _transport(EVENT, "{who} did not answer in time" + _UNANSWERED),
    ),
    (
        # gRPC's own: without a word before it, a connection that broke under the call
        (
            "the kept-alive connection was closed",
            "the connection ended before",
            "the call ended without",
            "UNAVAILABLE: ",
        ),
        _transport(EVENT, "{who} ended the connection without an answer" + _UNANSWERED),
    ),
    (
        ("the answer's headers are too long",),
        _transport(EVENT, "outboxd gave up on {who}, since its answer's headers were too long" + _UNANSWERED),
    ),
    (("the answer cannot be read",), _transport(EVENT, "{who} sent an answer that is no HTTP" + _UNANSWERED)),
    (("the call did not return in time",), _transport(EVENT, "the call of {who} took longer than publish_timeout")),
    (
        ("standard output ",),
        _transport(RECEIVER, "standard output took no more", "see that something reads it"),
    ),
    (
        ("not sent: ", "given up before it began", "not yet handed to "),
        _transport(WORKER, "it was claimed, but its turn did not come", parked=True),
    ),
    (
        ("envelope of ",),
        _transport(
            EVENT, "its payload is larger than the lane allows", "raise max_event_bytes, or purge it", is_invalid=True
        ),
    ),
    (
        ("larger than message.max.bytes: ",),
        _transport(
            EVENT,
            "it is larger than the Kafka client may send",
            "raise message.max.bytes in `publishers.{name}.options`, and the topic's own limit; or purge it",
            is_invalid=True,
        ),
    ),
    (
        ("the message has ", "RocketMQ takes no such message: "),
        _transport(
            EVENT,
            "{who} takes no message that is so large, or such as this one",
            "raise the limit at the server, or correct the producer and this row; or purge it",
            is_invalid=True,
        ),
    ),
    (
        (
            "headers are ",
            "event_id is empty",
            "event_type is empty",
            "a column holds text ",
            "envelope is no EventEnvelope",
            "envelope cannot be written as protobuf",
            "the envelope's body ",
            "launch_at_ms is no time",
            "too large for Tencent IM",
            "group id ",
            "has no room_id",
            "RoomUserKicked",
        ),
        _transport(
            EVENT,
            "no request can be made of it",
            "correct the producer; this row has to be corrected, too, or purged",
            is_invalid=True,
        ),
    ),
)
