"""The way of one event through its calls: a generator that yields calls, is sent their answers and returns the outcome.

Nothing that Tencent may have accepted is asked for again: a call is only repeated after a refusal.
"""

from collections.abc import Generator

import msgspec

from outboxd.config.schema import TencentIm
from outboxd.event import DELIVERED, REJECTED, SERVER_ERROR, Dead, Outcome, Retry
from outboxd.redact import clip
from outboxd.tencent import codes
from outboxd.tencent.codes import Kind, code_of, failure_of
from outboxd.tencent.requests import Call, Errand, Kick, account_import, get_group_info

ERROR_CHARACTERS = 400

CREATED_BUT_ABSENT = ", although it was just created"
TAKEN_BUT_ABSENT = "; but get_group_info does not find it"
AT_ODDS = (CREATED_BUT_ABSENT, TAKEN_BUT_ABSENT)
"""How a text ends where Tencent's answers do not fit together: a later attempt may find them in order."""

_SAME_TYPES = {"Work": "Private", "Meeting": "ChatRoom"}
"""Newer names of group types, which only some answers use."""
_NO_BAN = frozenset({10003, codes.INVALID_PARAMETER, codes.NO_RIGHT, codes.COMMAND_DISABLED})
"""What says that ban_group_member is not to be had: it needs a paid edition, a switch, or another type of group."""


class Answer(msgspec.Struct, frozen=True):
    """What Tencent said. info: its text, without secrets. groups: of get_group_info."""

    code: int
    info: str = ""
    groups: tuple["GroupInfo", ...] = ()


class GroupInfo(msgspec.Struct, frozen=True, rename={"type": "Type", "owner": "Owner_Account", "code": "ErrorCode"}):
    """One group, as get_group_info has it."""

    type: str = ""
    owner: str = ""
    code: int = 0


Step = Generator[Call, Answer, Outcome | None]
"""Calls; at the end the outcome, or None where the event may go on."""


def course_of(errand: Errand, settings: TencentIm, identifier: str) -> Generator[Call, Answer, Outcome]:
    """All calls of an event. identifier: who makes them."""
    steps: list[Step] = []
    if errand.kick is not None:
        steps.append(_put_out(errand.kick))
    create = _create(errand, settings, identifier)
    steps.append(create if errand.send is None else _send(errand.send, create))
    for step in steps:
        if (outcome := (yield from step)) is not None:
            return outcome
    return DELIVERED


def _create(errand: Errand, settings: TencentIm, identifier: str) -> Step:
    """Create the group, or find it there."""
    answer = yield from _ask(errand.create)
    if answer.code != codes.GROUP_OF_ANOTHER:
        return _outcome(errand.create, answer)
    question = get_group_info(errand.group)
    found = yield from _ask(question)
    if (failure := _outcome(question, found)) is not None:
        return failure
    if not found.groups or found.groups[0].code:
        return Retry(SERVER_ERROR, _text(errand.create, answer) + TAKEN_BUT_ABSENT)
    group = found.groups[0]
    owners = (settings.group_owner,) if settings.group_owner else ("", identifier)
    kind = _SAME_TYPES.get(group.type, group.type)
    if group.owner in owners and kind == settings.group_type:
        return None
    error = f"{_text(errand.create, answer)}: of type {group.type}, owner {group.owner or 'nobody'}"
    return Dead(REJECTED, clip(error, ERROR_CHARACTERS))


def _send(call: Call, create: Step) -> Step:
    """Send a message. Lanes need not be in order: the group may be missing because RoomCreated has not come yet."""
    answer = yield from _ask(call)
    if answer.code == codes.GROUP_ABSENT:
        if (failure := (yield from create)) is not None:
            return failure
        answer = yield from _ask(call)
        if answer.code == codes.GROUP_ABSENT:
            return Retry(SERVER_ERROR, _text(call, answer) + CREATED_BUT_ABSENT)
    return _outcome(call, answer)


def _put_out(kick: Kick) -> Step:
    """Take a user out of the group; where its type knows no members, ban; where that is not to be had, mute."""
    call = kick.delete
    answer = yield from _ask(call)
    if answer.code == codes.INVALID_PARAMETER:
        call = kick.ban
        answer = yield from _ask(call)
        if answer.code in _NO_BAN:
            call = kick.mute
            answer = yield from _ask(call)
    return None if answer.code == codes.GROUP_ABSENT else _outcome(call, answer)


def _ask(call: Call) -> Generator[Call, Answer, Answer]:
    """Make a call, and once more where the account that it needs was missing and could be imported."""
    answer = yield from _signed(call)
    if code_of(answer.code).kind is Kind.IMPORT and call.account:
        importing = account_import(call.account)
        imported = yield from _signed(importing)
        if code_of(imported.code).kind is not Kind.SUCCESS:
            return msgspec.structs.replace(imported, info=f"{importing.name}: {imported.info}")
        answer = yield from _signed(call)
    return answer


def _signed(call: Call) -> Generator[Call, Answer, Answer]:
    """Make a call, and once more with a new signature where that may help."""
    answer = yield call
    if code_of(answer.code).kind is Kind.RESIGN:
        answer = yield msgspec.structs.replace(call, is_resigned=True)
    return answer


def _outcome(call: Call, answer: Answer) -> Outcome | None:
    if code_of(answer.code).kind is Kind.SUCCESS:
        return None
    return failure_of(answer.code, _text(call, answer))


def _text(call: Call, answer: Answer) -> str:
    meaning = code_of(answer.code).meaning
    parts = (f"{call.name}: {answer.code}", meaning and f"({meaning})", answer.info)
    return clip(" ".join(part for part in parts if part), ERROR_CHARACTERS)
