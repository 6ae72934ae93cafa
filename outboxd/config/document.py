"""YAML text to plain values: mappings, lists, text, numbers, true and false, None. Bounded in depth and in size.

Built from the parser's events, not by PyYAML's constructor: a key given twice is a problem, aliases count with all
that they stand for, the environment is put in after parsing (so that a value cannot add structure), and no tag makes
an object of any other type.
"""

import re
from collections.abc import Iterator, Mapping

import yaml

from outboxd.config.report import Place, Report

MAX_CHARACTERS = 256 * 1024
MAX_VALUES = 20_000
MAX_DEPTH = 24

UNUSABLE = object()
"""Stands for a value whose problem is reported already."""

_VARIABLE = re.compile(r"\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\})?")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]{0,300})|0x[0-9a-fA-F]{1,16}")
_FLOAT = re.compile(r"[-+]?(?:[0-9]{1,30}\.[0-9]{0,30}|\.[0-9]{1,30}|[0-9]{1,30}(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?")
_WORDS: Mapping[str, object] = {
    **dict.fromkeys(("", "~", "null"), None),
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
}
# What an error of PyYAML may quote of the text: names of tokens and single characters. More may be a secret's part.
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_HARMLESS = re.compile(r"<[a-z -]+>|\\?.")

# What PyYAML 6 raises beside its own errors, for escapes such as "\Uffffffff" or a %YAML line with endless digits.
_PARSER_ERRORS = (ValueError, OverflowError, IndexError, KeyError, AttributeError, TypeError, RecursionError)


class Malformed(Exception):
    """The text is no document that can be used; the text says at which line."""


def read(text: str, environ: Mapping[str, str], report: Report) -> object:
    """The document's value; None when it is empty. Problems of single values go to the report.

    Raises Malformed for what makes the whole unreadable: syntax, too deep, too large, more than one document.
    """
    if len(text) > MAX_CHARACTERS:
        raise Malformed(f"larger than {MAX_CHARACTERS // 1024} KiB, which is no configuration of outboxd")
    return _Builder(_events(text), environ).document(Place(report))


def _events(text: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=yaml.SafeLoader)
        return
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = _QUOTED.sub(_harmless, error.problem or "not YAML")
        if mark is not None:
            problem = f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"line {line}: a character that YAML does not allow, write it as an escape in quotes"
    except _PARSER_ERRORS:
        problem = "not YAML that can be read"
    raise Malformed(problem)  # outside of the handlers: the parser's error may quote the text


def typed(text: str) -> object:
    """What YAML makes of unquoted text. Dates, sexagesimal and octal numbers stay text: they are always a slip here."""
    word = text.lower()
    if word in _WORDS and text in (word, word.upper(), word.capitalize()):
        return _WORDS[word]
    if _INTEGER.fullmatch(text):
        return int(text, 16 if text.startswith("0x") else 10) if not text.endswith("_") and "__" not in text else text
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


class _Builder:
    """One reading of one text."""

    def __init__(self, events: Iterator[yaml.Event], environ: Mapping[str, str]) -> None:
        self._events = events
        self._environ = environ
        self._anchors: dict[str, tuple[object, int]] = {}
        self._values = 0

    def document(self, place: Place) -> object:
        next(self._events)  # the stream's start
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        value = self._value(next(self._events), place, 0)
        next(self._events)  # the document's end
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise Malformed(f"{_at(after)}: a second document begins, keep one")
        return value

    def _value(self, event: yaml.Event, place: Place, depth: int) -> object:
        if depth > MAX_DEPTH:
            raise Malformed(f"{_at(event)}: nested deeper than {MAX_DEPTH} levels")
        before = self._values
        self._count(1, event)
        value: object
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(place, depth)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(place, depth)
        else:
            value = self._scalar(event, place)
        tag = getattr(event, "tag", None)
        if tag not in (None, "!", "tag:yaml.org,2002:str"):
            place.problem("has a tag (!…), which has no meaning here, write the value alone")
            value = UNUSABLE
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            self._anchors[anchor] = (value, self._values - before)
        return value

    def _count(self, values: int, event: yaml.Event) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            raise Malformed(f"{_at(event)}: more than {MAX_VALUES} values, aliases counted in full")

    def _alias(self, event: yaml.AliasEvent) -> object:
        if event.anchor not in self._anchors:
            raise Malformed(f"{_at(event)}: an alias (*…) without its anchor (&…) before, quote text with *")
        value, size = self._anchors[event.anchor]
        self._count(size - 1, event)
        return value

    def _sequence(self, place: Place, depth: int) -> list[object]:
        items: list[object] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, place.item(len(items)), depth + 1))
        return items

    def _mapping(self, place: Place, depth: int) -> dict[str, object]:
        own: dict[str, object] = {}
        merged: dict[str, object] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                place.problem(f"the key in line {_line(event)} is no text, quote text with {{ or [ or *")
                self._value(event, place, depth + 1)
                self._value(next(self._events), place, depth + 1)
                continue
            key, line = event.value, _line(event)
            at = place.child(key)
            value = self._value(next(self._events), at, depth + 1)
            if key == "<<" and event.implicit[0]:
                self._merge(value, merged, at)
            elif key in own:
                at.problem(f"given twice, in lines {lines[key]} and {line}, keep one")
            else:
                own[key], lines[key] = value, line
        return {**merged, **own}

    def _merge(self, value: object, merged: dict[str, object], place: Place) -> None:
        """`<<: *anchor` or `<<: [*one, *two]`: the earlier wins."""
        for source in value if isinstance(value, list) else [value]:
            if isinstance(source, dict):
                merged.update({key: item for key, item in source.items() if key not in merged})
            elif source is not UNUSABLE:
                place.problem("<< takes a mapping or a list of mappings, write <<: *anchor")

    def _scalar(self, event: yaml.Event, place: Place) -> object:
        assert isinstance(event, yaml.ScalarEvent)
        text = self._substituted(event.value, place)
        if text is None:
            return UNUSABLE
        if _SURROGATE.search(text):
            place.problem("holds characters that are not valid UTF-8")
            return UNUSABLE
        return typed(text.strip()) if event.implicit[0] else text

    def _substituted(self, text: str, place: Place) -> str | None:
        """The text with the environment put in, once: what comes out of it is not looked at again."""
        if "${" not in text:
            return text
        problems: list[str] = []
        used: list[str] = []

        def replacement(found: re.Match[str]) -> str:
            name, has_default, default = found.groups()
            value = self._environ.get(name) if name else None
            if value or (value is not None and not has_default):
                used.append(name)
                return value
            if name is None:
                problems.append("${ is not followed by NAME} or NAME:-default}")
            elif not has_default:
                problems.append(f"${{{name}}} is not set in the environment, set it or write ${{{name}:-default}}")
            return default or ""

        result = _VARIABLE.sub(replacement, text)
        for problem in problems:
            place.problem(problem)
        if used:
            place.report.substituted.update((result, result.strip()))
        return None if problems else result


def _harmless(found: re.Match[str]) -> str:
    return found.group() if _HARMLESS.fullmatch(found[1] or found[2] or "") else "this"


def _at(event: yaml.Event) -> str:
    mark = event.start_mark
    assert mark is not None
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None
    return event.start_mark.line + 1
