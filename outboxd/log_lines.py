"""How a line of the log is made of its facts, and written: as JSON or for the eye."""

import json
import logging
import select
import time
import traceback
from collections.abc import Callable, Mapping

import msgspec

from outboxd.output import Output
from outboxd.redact import clip, redact

_LIMITS = (1500, 400, 100)
"""Characters of one text: as many as leave the line within PIPE_BUF."""

_TRACEBACK_LINES = 30


class Handler(logging.Handler):
    """Turns records into lines. `line_of`: the format. lost: level and event of the line that tells of those that got
    lost. library_event: what a library's own line is called.
    """

    def __init__(self, node_id: str, lost: tuple[int, str], library_event: str) -> None:
        super().__init__()
        self._lost, self._library_event = lost, library_event
        self._context = {"worker": "", "node_id": node_id}  # stands in every line
        self.line_of: Callable[[Mapping[str, object]], bytes] = json_line
        self._output = Output(2)

    def bind(self, worker: str) -> None:
        self._context["worker"] = worker
        self._output.lost = 0  # those of the process before the fork are its own to tell

    def emit(self, record: logging.LogRecord) -> None:
        if self._output.lost:
            note = self._facts(self._lost[0], time.time(), self._lost[1]) | {"count": self._output.lost}
            self._output.write(self.line_of(note), is_note=True)
        self._output.write(self._line(record))

    def _line(self, record: logging.LogRecord) -> bytes:
        fields = getattr(record, "fields", None)
        event = self._library_event if fields is None else record.msg
        facts = self._facts(record.levelno, record.created, event)
        try:
            if fields is None:
                fields = {"logger": record.name, "message": record.getMessage()}
                if record.exc_info and record.exc_info[1] is not None:
                    fields["traceback"] = record.exc_info[1]
            for limit in _LIMITS:
                line = self.line_of(facts | {name: _shown(value, limit) for name, value in fields.items()})
                if len(line) <= select.PIPE_BUF:
                    return line
        except Exception as failure:  # noqa: BLE001  a field that cannot be shown must not end the one that logs it
            return self.line_of(facts | {"unprintable": type(failure).__name__})
        return self.line_of(facts | {"left_out": len(fields)})

    def _facts(self, level: int, created_s: float, event: str) -> dict[str, object]:
        seconds, milliseconds = divmod(int(created_s * 1000), 1000)
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{milliseconds:03d}Z"
        return {"time": moment, "level": logging.getLevelName(level).lower(), "event": event, **self._context}


def _shown(value: object, limit: int) -> object:
    """The value as it may be seen: numbers as they are, everything else as redacted and clipped text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_shown(item, limit) for item in list(value)[:20]]
    if isinstance(value, BaseException):
        lines = redact("".join(traceback.format_exception(value))).splitlines()
        return "\n".join(clip(line, min(limit, 200)) for line in lines[-_TRACEBACK_LINES * limit // _LIMITS[0] :])
    return clip(redact(str(value)), limit)


def json_line(facts: Mapping[str, object]) -> bytes:
    """One object."""
    return msgspec.json.encode(facts) + b"\n"


def console_line(facts: Mapping[str, object]) -> bytes:
    """`12:30:01.250 warning room_outbox-01 lease_lost event_id=e-1 ...`; a traceback follows on lines of its own."""
    words = [str(facts["time"])[11:23], f"{facts['level']:7}", str(facts["worker"] or "-"), str(facts["event"])]
    known = ("time", "level", "worker", "event", "node_id", "traceback")
    words += [f"{name}={_word(value)}" for name, value in facts.items() if name not in known]
    return "\n".join([" ".join(words), *str(facts.get("traceback", "")).splitlines(), ""]).encode("utf-8", "replace")


def _word(value: object) -> str:
    if isinstance(value, str) and value and not any(character in value for character in ' "=\n'):
        return value
    return json.dumps(value, ensure_ascii=False)
