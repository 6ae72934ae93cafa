"""Which event types a publisher gets. Pure."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

REMEMBERED_TYPES = 4096


def wants(patterns: Sequence[str]) -> Callable[[str], bool]:
    """A filter over event types: globs, case-sensitive; `!` excludes and wins. Only exclusions mean: all but those."""
    excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    included = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]

    @lru_cache(maxsize=REMEMBERED_TYPES)
    def matches(event_type: str) -> bool:
        return _any(event_type, included) and not _any(event_type, excluded)

    return matches


def _any(event_type: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(event_type, pattern) for pattern in patterns)
