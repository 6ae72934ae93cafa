"""Tencent IM's error codes: what each means for an event. Sources: Tencent Cloud documents 269/1671 and 679/131708.

A refusal of the caller (no right, a wrong signature, a disabled app) is a misconfiguration: events are held until
someone puts it right, and are never dead letters for it.
"""

from enum import StrEnum
from typing import NamedTuple

from outboxd.event import MISCONFIGURED, REJECTED, SERVER_ERROR, THROTTLED, Dead, Retry

OK = 0
INVALID_PARAMETER = 10004
NO_RIGHT = 10007
ILLEGAL_REQUEST = 10008
"""May mean the signature, or the request itself: after a new signature it uses up the event's attempts."""
GROUP_ABSENT = 10010
GROUP_OF_ANOTHER = 10021
COMMAND_DISABLED = 10026
FROZEN_WAIT_S = 60.0
"""70050: after too many wrong signatures Tencent refuses all calls for a minute."""


class Kind(StrEnum):
    """What a code asks for."""

    SUCCESS = "success"
    RETRY = "retry"
    THROTTLED = "throttled"
    WAIT = "wait"
    RESIGN = "re-sign"
    IMPORT = "import"
    MISCONFIGURED = "misconfigured"
    PERMANENT = "permanent"


class Code(NamedTuple):
    """One code. meaning: for people; may be empty, since Tencent's own text stands beside it."""

    kind: Kind
    meaning: str


CODES: dict[int, Code] = {
    OK: Code(Kind.SUCCESS, ""),
    # groups
    10002: Code(Kind.RETRY, "internal error"),
    10003: Code(Kind.PERMANENT, "no such command"),
    INVALID_PARAMETER: Code(Kind.PERMANENT, "invalid parameter"),
    10005: Code(Kind.PERMANENT, "too many accounts"),
    10006: Code(Kind.THROTTLED, "asked too often, or the quota of new groups is used up"),
    NO_RIGHT: Code(Kind.MISCONFIGURED, "no right; check that identifier is an administrator, and group_type"),
    ILLEGAL_REQUEST: Code(Kind.RESIGN, "illegal request"),
    GROUP_ABSENT: Code(Kind.PERMANENT, "the group does not exist or is dissolved"),
    10011: Code(Kind.PERMANENT, "the request cannot be read"),
    10012: Code(Kind.PERMANENT, "invalid operator"),
    10013: Code(Kind.SUCCESS, "already a member"),
    10014: Code(Kind.PERMANENT, "the group is full"),
    10015: Code(Kind.PERMANENT, "invalid group id"),
    10016: Code(Kind.PERMANENT, "refused by the app's own callback"),
    10017: Code(Kind.PERMANENT, "the sender is muted"),
    10018: Code(Kind.PERMANENT, "the response is too large"),
    10019: Code(Kind.IMPORT, "no such account"),
    GROUP_OF_ANOTHER: Code(Kind.PERMANENT, "the group id is in use by another owner"),
    10023: Code(Kind.THROTTLED, "too many messages to this group"),
    10024: Code(Kind.SUCCESS, "handled already"),
    10025: Code(Kind.SUCCESS, "the group is there already"),
    COMMAND_DISABLED: Code(Kind.MISCONFIGURED, "the command is disabled for this app"),
    10036: Code(Kind.PERMANENT, "too many AVChatRoom groups"),
    10037: Code(Kind.PERMANENT, "the owner has too many groups"),
    10038: Code(Kind.PERMANENT, "the group has too many members"),
    10056: Code(Kind.RETRY, "conflict of attributes"),
    # messages
    20003: Code(Kind.IMPORT, "no such account"),
    20004: Code(Kind.RETRY, "network error"),
    20005: Code(Kind.RETRY, "internal error"),
    20006: Code(Kind.PERMANENT, "refused by the app's own callback"),
    20009: Code(Kind.PERMANENT, "no friends"),
    20010: Code(Kind.PERMANENT, "no friends"),
    20011: Code(Kind.PERMANENT, "no friends"),
    20012: Code(Kind.PERMANENT, "the sender is muted"),
    80001: Code(Kind.PERMANENT, "refused by moderation"),
    80002: Code(Kind.PERMANENT, "the message is too long"),
    90012: Code(Kind.IMPORT, "no such account"),
    90048: Code(Kind.IMPORT, "no such account"),
    90992: Code(Kind.RETRY, "internal error"),
    90994: Code(Kind.RETRY, "internal error"),
    90995: Code(Kind.RETRY, "internal error"),
    91000: Code(Kind.RETRY, "internal error"),
    93000: Code(Kind.PERMANENT, "the message is too long"),
    # transport
    60007: Code(Kind.MISCONFIGURED, "refused by the interface; asked too often"),
    60008: Code(Kind.MISCONFIGURED, "malformed request, or a time-out of the service"),
    60011: Code(Kind.MISCONFIGURED, "refused by the interface; asked too often"),
    60013: Code(Kind.RETRY, "the response cannot be parsed"),
    60014: Code(Kind.RETRY, "time-out while exchanging accounts"),
    60015: Code(Kind.MISCONFIGURED, "check sdk_app_id"),
    60016: Code(Kind.MISCONFIGURED, "the app is disabled"),
    60017: Code(Kind.MISCONFIGURED, "check sdk_app_id"),
    60018: Code(Kind.THROTTLED, "asked too often"),
    60019: Code(Kind.THROTTLED, "asked too often"),
    60020: Code(Kind.MISCONFIGURED, "the app's package has expired or does not hold this"),
    60021: Code(Kind.MISCONFIGURED, "this machine's address is not allowed to call"),
    # accounts and signatures
    40006: Code(Kind.RETRY, "internal error of accounts"),
    70001: Code(Kind.RESIGN, "the UserSig has expired"),
    70020: Code(Kind.MISCONFIGURED, "no such app here; check sdk_app_id and region"),
    70050: Code(Kind.WAIT, "too many wrong signatures; refused for a minute"),
    70051: Code(Kind.PERMANENT, "the account is on a blacklist"),
    70052: Code(Kind.RESIGN, "the UserSig was made invalid"),
    70107: Code(Kind.IMPORT, "no such account"),
    70114: Code(Kind.PERMANENT, "refused for reasons of security"),
    70169: Code(Kind.RETRY, "time-out of accounts"),
    70398: Code(Kind.PERMANENT, "the app has too many accounts"),
    70399: Code(Kind.PERMANENT, "invalid parameters of an account"),
    70402: Code(Kind.PERMANENT, "invalid parameters of an account"),
    70403: Code(Kind.MISCONFIGURED, "check that identifier is an administrator"),
    70500: Code(Kind.RETRY, "internal error of accounts"),
    90009: Code(Kind.MISCONFIGURED, "check that identifier is an administrator"),
    90026: Code(Kind.PERMANENT, "the message cannot be read"),
}
"""Those with a meaning of their own; RANGES has the others."""

RANGES: tuple[tuple[range, Code], ...] = (
    (range(60002, 60013), Code(Kind.MISCONFIGURED, "refused by the interface; check sdk_app_id and identifier")),
    (range(70002, 70017), Code(Kind.MISCONFIGURED, "check sdk_app_id, identifier and secret_key")),
    (range(90001, 90011), Code(Kind.PERMANENT, "the message cannot be read")),
    (range(120001, 130001), Code(Kind.PERMANENT, "refused by the app's own callback")),
)
_UNKNOWN = Code(Kind.RETRY, "")


def code_of(number: int) -> Code:
    """What the number means. One that is not known may pass; if it does not, it uses up the event's attempts."""
    known = CODES.get(number)
    return known or next((code for numbers, code in RANGES if number in numbers), _UNKNOWN)


def failure_of(number: int, error: str) -> Retry | Dead | None:
    """The outcome of a code that nothing more is tried against; None: success. error: what to tell people."""
    match code_of(number).kind:
        case Kind.SUCCESS:
            return None
        case Kind.PERMANENT:
            return Dead(REJECTED, error)
        case Kind.MISCONFIGURED:
            return Retry(MISCONFIGURED, error, counted=False)
        case Kind.THROTTLED:
            return Retry(THROTTLED, error, counted=False)
        case Kind.WAIT:
            return Retry(THROTTLED, error, counted=False, retry_after_s=FROZEN_WAIT_S)
        case Kind.RESIGN if number != ILLEGAL_REQUEST:
            # The signature is new: the clock, the key or the account is what is wrong.
            return Retry(MISCONFIGURED, f"{error}; check the clock and secret_key", counted=False)
    return Retry(SERVER_ERROR, error)
