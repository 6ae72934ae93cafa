"""The section `jobs`."""

import re
from collections.abc import Mapping

from outboxd.config import schema
from outboxd.config.keys import Key, boolean, duration, items, read_text, section, whole
from outboxd.config.report import Bad, Place

_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def read_jobs(value: object, place: Place) -> schema.Jobs:
    """The section."""
    return schema.Jobs(**section(value, place, JOBS, schema.Jobs()).values)


def _read_modules(value: object, place: Place) -> tuple[str, ...]:
    names: tuple[str, ...] = items(value, place, _read_module)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Bad(f"names {place.show(twice[0])} twice, keep one")
    return names


def _read_module(value: object, place: Place) -> str:
    text = read_text(value, place)
    if _MODULE.fullmatch(text) is None:
        raise Bad(f"{place.show(text)} is no module's name, write it as in an import: package.module")
    return text


JOBS: Mapping[str, Key] = {
    "enabled": boolean(),
    "handlers": Key(_read_modules),
    "allow_private_targets": boolean(),
    "once_per_tick": boolean(),
    "log_retention_days": whole(1, 36_500),
    "drain_timeout": duration("0s", "1h"),
}
