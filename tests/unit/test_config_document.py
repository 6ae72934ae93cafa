"""From YAML text to plain values: syntax, bounds, keys given twice, the environment."""

import os
from pathlib import Path
from typing import Any

import pytest

from outboxd.config.document import Malformed, read
from outboxd.config.load import load, parse
from outboxd.config.report import Report
from outboxd.errors import ConfigError

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGE_BOMB = "a: &a {x: 1, y: 2}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join(['*' + before] * 9)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def value_of(text: str, **environ: str) -> Any:
    report = Report("outbox.yaml")
    value = read(text, environ, report)
    assert report.problems == []
    return value


def problems_of(text: str, **environ: str) -> list[str]:
    report = Report("outbox.yaml")
    read(text, environ, report)
    return report.lines(report.problems)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("# nothing\n", None), ("---\n", None), ("\ufeffa: 1", {"a": 1}),
        ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
        ("a: yes", {"a": True}), ("a: Off", {"a": False}), ("a: 'yes'", {"a": "yes"}), ("a: yEs", {"a": "yEs"}),
        ("a: 010", {"a": "010"}), ("a: 1:30", {"a": "1:30"}), ("a: 2024-01-01", {"a": "2024-01-01"}),
        ("a: 1_000", {"a": 1000}), ("a: 1__0", {"a": "1__0"}), ("a: 0x1F", {"a": 31}), ("a: -5", {"a": -5}),
        ("a: 1.5", {"a": 1.5}), ("a: 1e3", {"a": 1000.0}), ("a: .5", {"a": 0.5}), ("a: ~", {"a": None}),
        ("a: !!str 5", {"a": "5"}), ("5: a", {"5": "a"}), ("null: a", {"null": "a"}), ("a: |\n  b\n", {"a": "b\n"}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
    ],
)  # fmt: skip
def test_text_becomes_plain_values(text: str, value: object) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1,\nb: }", "line 2, column 4: expected the node content, but found '}'"),
        ("a:\t1", "line 1, column 3: found character '\\t' that cannot start any token"),
        ("a: b: c", "line 1, column 5: mapping values are not allowed here"),
        ("a: [b {", "line 1, column 7: expected ',' or ']', but got '{'"),
        ("a: 'x", "line 1, column 6: found unexpected end of stream"),
        ("a: !hunter2!x b", "line 1, column 4: found undefined tag handle this"),
        ("a: \0", "line 1: a character that YAML does not allow, write it as an escape in quotes"),
        ("a: 1\n---\nb: 2", "line 2, column 1: a second document begins, keep one"),
        ("a: *b", "line 1, column 4: an alias (*…) without its anchor (&…) before, quote text with *"),
        ("a: &a [*a]", "line 1, column 8: an alias (*…) without its anchor (&…) before, quote text with *"),
        ("[" * 100_000, "line 1, column 26: nested deeper than 24 levels"),
        ("- " * 50_000, "line 1, column 51: nested deeper than 24 levels"),
        ("{a: " * 10_000, "line 1, column 101: nested deeper than 24 levels"),
        (BOMB, "line 5, column 12: more than 20000 values, aliases counted in full"),
        (MERGE_BOMB, "line 5, column 41: more than 20000 values, aliases counted in full"),
        ("- a\n" * 20_000, "line 20000, column 3: more than 20000 values, aliases counted in full"),
        ("#" * 300_000, "larger than 256 KiB, which is no configuration of outboxd"),
        ('a: "\\Uffffffff"', "not YAML that can be read"),
    ],
)
def test_what_cannot_be_read_is_one_line_with_its_place(text: str, message: str) -> None:
    """Bombs and nesting end early instead of filling the memory; nothing ends in a traceback."""
    with pytest.raises(Malformed) as caught:
        value_of(text)
    assert str(caught.value) == message
    with pytest.raises(ConfigError) as refused:
        parse(text, {}, "outbox.yaml")
    assert refused.value.problems == (f"outbox.yaml: {message}",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: {b: 1, c: 2,\n b: 3}", "a.b: given twice, in lines 1 and 2, keep one"),
        ("a: !!binary aGk=", "a: has a tag (!…), which has no meaning here, write the value alone"),
        (
            "a: !!python/object/apply:os.system [id]",
            "a: has a tag (!…), which has no meaning here, write the value alone",
        ),
        ("[a]: 1", "outbox.yaml: the key in line 1 is no text, quote text with { or [ or *"),
        ("a: {{b: c}: d}", "a: the key in line 1 is no text, quote text with { or [ or *"),
        ("a: {<<: b}", "a.(a key): << takes a mapping or a list of mappings, write <<: *anchor"),
        ('a: "\\ud800"', "a: holds characters that are not valid UTF-8"),
        ("a: [x, '${NO}']", "a[1]: ${NO} is not set in the environment, set it or write ${NO:-default}"),
        ("a: ${NO-x}", "a: ${ is not followed by NAME} or NAME:-default}"),
        ("a: ${", "a: ${ is not followed by NAME} or NAME:-default}"),
        ("a: ${1X}", "a: ${ is not followed by NAME} or NAME:-default}"),
    ],
)
def test_a_value_that_cannot_be_used_is_a_problem_with_its_path(text: str, problem: str) -> None:
    assert problems_of(text) == [problem]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${N}", 5), ("'${N}'", "5"), ("x${N}y${N}", "x5y5"), ("${EMPTY}", None), ("${EMPTY:-7}", 7), ("${NO:-}", None),
        ("${NO:-a b}", "a b"), ("'${NO:-}'", ""), ("${YES}", True), ("$N ${N:-1}", "$N 5"), ("${NO:-a:-b}", "a:-b"),
        ("${TRAP}", "[a, {b: c}] # d"), ("${LINES}", "a: 1\nb: 2"), ("${NESTED}", "${N}"), ("${PADDED}", "x"),
    ],
)  # fmt: skip
def test_the_environment_is_put_in_after_parsing(text: str, value: object) -> None:
    """What stands in a variable can never become a key, a list or a second variable."""
    environ = {
        "N": "5", "EMPTY": "", "YES": "yes", "TRAP": "[a, {b: c}] # d", "LINES": "a: 1\nb: 2", "NESTED": "${N}",
        "PADDED": " x ",
    }  # fmt: skip
    assert value_of(f"a: {text}", **environ) == {"a": value}


def test_the_environment_is_not_put_into_keys() -> None:
    assert value_of("${N}: 1", N="x") == {"${N}": 1}


def test_a_missing_variable_gives_no_second_problem_about_its_value() -> None:
    text = (
        "publishers: {c: {type: console}}\n"
        "outbox_worker: {direct: ['${P}'], poll_interval: '${B}'}\n"
        "database: {url: '${U}'}\n"
    )
    with pytest.raises(ConfigError) as caught:
        parse(text, {}, "x")
    assert [problem.partition(" ")[0] for problem in caught.value.problems] == [
        "outbox_worker.direct[0]:",
        "outbox_worker.poll_interval:",
        "database.url:",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.yaml", "no such file, check the path"),
        ("", "is a directory, name a file in it"),
        ("pipe", "is no regular file, name one"),
        ("latin.yaml", "is not UTF-8 (byte 4), save it as UTF-8"),
        ("large.yaml", "is larger than 1024 KiB, name the right file"),
        ("x\0y", "cannot be opened (not a name a file can have), check its path and permissions"),
        ("x" * 300, "cannot be opened (file name too long), check its path and permissions"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, name: str, message: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9")
    (tmp_path / "large.yaml").write_bytes(b"#" * 1_100_000)
    with pytest.raises(ConfigError) as caught:
        load(f"{tmp_path}/{name}", {})
    (problem,) = caught.value.problems
    assert "\n" not in problem
    assert len(problem) <= 300
    if len(name) < 100:
        assert problem.endswith(f": {message}")
