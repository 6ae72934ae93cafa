"""Where problems are gathered while a configuration is read, and how they are worded.

No line shows the value of a key that may bear a secret: such readers never put it into the text. What came out of the
environment is not shown either, whatever the key. What is shown passes `redact`, and every text has the secrets masked
that were found by the end.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from outboxd.redact import clip, mask, redact

LINE_CHARACTERS = 300
MAX_LINES = 100
_SHOWN_CHARACTERS = 40
_LISTED_NAMES = 8
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_ .-]{1,60}")


class Bad(Exception):
    """A value cannot be used. Its text says what is wrong and what to do; whoever knows the path reports it."""


class Reported(Exception):
    """Parts of a value cannot be used, which is reported already; `usable` is the rest."""

    def __init__(self, usable: object) -> None:
        super().__init__()
        self.usable = usable


@dataclass(slots=True)
class Report:
    """Everything noticed about one configuration. `where` names it, for what concerns the file as a whole."""

    where: str
    problems: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    substituted: set[str] = field(default_factory=set)

    def lines(self, noticed: list[tuple[str, str]]) -> list[str]:
        """One line each of `problems` or `warnings`; the first MAX_LINES and how many more there are."""
        lines = [clip(f"{path}: {mask(text, self.secrets)}", LINE_CHARACTERS) for path, text in noticed[:MAX_LINES]]
        if len(noticed) > MAX_LINES:
            lines.append(f"{clip(self.where, 200)}: {len(noticed) - MAX_LINES} more, mend these first")
        return lines


@dataclass(frozen=True, slots=True)
class Place:
    """A value's place in the file; the root has the path ""."""

    report: Report
    path: str = ""

    def child(self, key: str) -> "Place":
        """The place of a mapping's value. A key that is no plain word is not shown: it may be a slipped value."""
        shown = key if _PLAIN_KEY.fullmatch(key) else "(a key)"
        return Place(self.report, f"{self.path}.{shown}" if self.path else shown)

    def item(self, index: int) -> "Place":
        """The place of a list's item."""
        return Place(self.report, f"{self.path}[{index}]")

    def problem(self, text: str) -> None:
        """The configuration is refused because of this."""
        self.report.problems.append((self.path or self.report.where, text))

    def warn(self, text: str) -> None:
        """The configuration is used, but not as written."""
        self.report.warnings.append((self.path or self.report.where, text))

    def show(self, value: object) -> str:
        """A value for a message, short; only for keys that bear no secret."""
        if str(value) in self.report.substituted:
            return "the value from the environment"
        shown = clip(redact(str(value), self.report.secrets), _SHOWN_CHARACTERS)
        shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in shown)
        return f"'{shown}'" if isinstance(value, str) else shown


def suggest(name: str, known: Iterable[str], where: str = "see docs/configuration.md") -> str:
    """`did you mean batch_size?`, or the names there are, or where to find them."""
    names = list(known)
    folded = {candidate.lower(): candidate for candidate in names}
    wanted = name[:64].lower()
    near = difflib.get_close_matches(wanted, folded, n=1, cutoff=0.72)
    if not near and wanted:
        near = [candidate for candidate in folded if candidate.startswith(wanted)]
    if near:
        return f"did you mean {folded[near[0]]}?"
    if len(names) > _LISTED_NAMES:
        return f"{where} for the names known here"
    return f"known here: {', '.join(names) or 'none'}"
