"""Durations and sizes as people write them: `3s`, `1h30m`, `16MiB`. Pure."""

import re

_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,6})?)"
_DURATION = re.compile(rf"(-?)(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?")
_SIZE = re.compile(r"([0-9]{1,9})(KiB|MiB|GiB)")
_SIZE_UNITS = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def parse_duration_s(text: str) -> float | None:
    """Seconds of `500ms`, `3s`, `5m`, `1h30m` (each unit once, the greatest first); None when it is no duration."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()[1:]):
        return None
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in found.groups()[1:])
    total_s = hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
    return round(-total_s if found[1] else total_s, 6)


def format_duration(duration_s: float) -> str:
    """The shortest way to write a duration of whole milliseconds; `parse_duration_s` reads it back."""
    rest_ms = round(abs(duration_s) * 1000)
    text = ""
    for unit, unit_ms in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest_ms = divmod(rest_ms, unit_ms)
        text += f"{count}{unit}" if count else ""
    return ("-" if duration_s < 0 and text else "") + (text or "0s")


def parse_size_bytes(text: str) -> int | None:
    """Bytes of `512KiB`, `16MiB`, `1GiB`; None when it is no size."""
    found = _SIZE.fullmatch(text)
    return None if found is None else int(found[1]) * _SIZE_UNITS[found[2]]


def format_size(size_bytes: int) -> str:
    """The shortest exact way to write a size."""
    for unit in ("GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % _SIZE_UNITS[unit] == 0:
            return f"{size_bytes // _SIZE_UNITS[unit]}{unit}"
    return str(size_bytes)
