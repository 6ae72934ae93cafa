"""Whatever is thrown at it: a configuration or a ConfigError of short lines without secrets, and nothing else."""

import json
import string
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from outboxd import redact
from outboxd.config import keys, lanes, load, publishers
from outboxd.config.schema import COLUMNS, Config
from outboxd.errors import ConfigError

SECRET = "Kq7Zx-planted-9vW2"

NAMES = sorted(
    {
        *load.TOP, *load.DATABASE, *keys.SUPERVISOR, *keys.LOG, *keys.BREAKER, *lanes.KEYS, *publishers.OF_EVERY,
        *publishers.KEYS["http"], *publishers.KEYS["python"], *COLUMNS, "type", "<<", "room_outbox", "hook",
        "X-Api-Key",
    }
)  # fmt: skip
WORDS = (
    "", "console", "http", "null", "python", "hook", "direct", "mq", "3s", "-1s", "16MiB", "*", "!", "yes", "5", "json",
    "http://h/", "mysql://u@h/d", "sqlite:///x.db", "${X}", "${X:-1}", "${S}", "${", "/", "/dev/null", "\x00", "\ud800",
    "a.b:c", "room_outbox", "{lane}", "9" * 40,
)  # fmt: skip
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(WORDS), st.text(max_size=20))
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(), inner, max_size=5),
    max_leaves=25,
)
SECTIONS = st.fixed_dictionaries({}, optional=dict.fromkeys(load.TOP, VALUES))
HTTP = st.fixed_dictionaries({"type": st.just("http")}, optional=dict.fromkeys(publishers.KEYS["http"], VALUES))
LANE = st.fixed_dictionaries({}, optional=dict.fromkeys(lanes.KEYS, VALUES))
NEARLY = st.fixed_dictionaries(
    {"publishers": st.fixed_dictionaries({"hook": HTTP}), "lanes": st.fixed_dictionaries({"room_outbox": LANE})},
    optional={
        "database": st.fixed_dictionaries({}, optional=dict.fromkeys(load.DATABASE, VALUES)),
        "outbox_worker": LANE,
        "log": VALUES,
    },
)
SLOW = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken for a secret here must not be masked in the texts of other tests."""
    monkeypatch.setattr(redact, "_known", frozenset())


def outcome(read: Callable[[], Config]) -> str:
    """All that could be seen of reading it: the problems, or the configuration and its warnings."""
    try:
        config: Config | None = read()
        error: ConfigError | None = None
    except ConfigError as raised:
        config, error = None, raised
    lines = config.warnings if config is not None else error.problems if error is not None else ()
    assert config is not None or lines
    for line in lines:
        assert line.isprintable()
        assert len(line) <= 300
    if error is None:
        return repr(config)
    assert error.__context__ is None
    return "".join(traceback.format_exception(error))


def outcome_of_text(text: str) -> str:
    return outcome(lambda: load.parse(text, {"S": SECRET, "X": SECRET}, "outbox.yaml"))


@SLOW
@given(st.text() | st.text(alphabet=string.printable, max_size=200) | st.text(alphabet="[]{}:,-#&*!|>'\"%@`? \n\ta<"))
@example("%YAML 1.99999999999999999999999999\n---\n")
@example("a: !<tag:yaml.org,2002:str> b")
@example("? ? ? a")
@example("\x85")
def test_any_text_is_a_configuration_or_problems(text: str) -> None:
    outcome_of_text(text)


@SLOW
@given(content=st.binary(max_size=200) | st.text().map(lambda text: text.encode("utf-16")))
def test_any_file_is_a_configuration_or_problems(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "outbox.yaml"
    path.write_bytes(content)
    outcome(lambda: load.load(str(path), {}))


@SLOW
@given(SECTIONS | NEARLY | VALUES)
def test_any_nesting_of_known_keys_is_a_configuration_or_problems(document: Any) -> None:
    outcome_of_text(json.dumps(document))


PLANTS: list[tuple[str, str, Any]] = [
    ("database", "url", "mysql://u:{}@h/d"),
    ("database", "url", "mysql://u:{}/@h/d"),
    ("database", "url", "mysql://u:{}#@h/d?x"),
    ("database", "url", "{}"),
    ("database", "password_file", "FILE"),
    ("hook", "url", "https://u:{}@h/"),
    ("hook", "url", "https://{}@h/?a"),
    ("hook", "url", "https://h/?token={}"),
    ("hook", "url", "ftp://u:{}@h"),
    ("hook", "headers", {"Authorization": "Bearer {}"}),
    ("hook", "headers", {"X-Api-Key": "{}\n"}),
    ("hook", "headers", {"X-Api-Key: {}": None}),
    ("hook", "headers", {"X-Api-Key": ["{}"]}),
    ("hook", "headers", "{}"),
    ("hook", "authorization_file", "FILE"),
    ("hook", "secret_file", "FILE"),
    ("hook", "authorization", "{}"),
    ("hook", "secret", "whsec_{}"),
    ("database", "password", "{}"),
]


def planted(value: Any, secret: str, file: str) -> Any:
    if isinstance(value, dict):
        return {planted(name, secret, file): planted(item, secret, file) for name, item in value.items()}
    if isinstance(value, list):
        return [planted(item, secret, file) for item in value]
    return value.replace("{}", secret).replace("FILE", file) if isinstance(value, str) else value


def seen_with(plants: list[tuple[str, str, Any]], document: Any, secret: str, file: Path) -> str:
    """What is seen of a document with secrets put into it."""
    file.write_text(SECRET)
    for where, key, value in plants:
        section = document.setdefault("database", {}) if where == "database" else document["publishers"]["hook"]
        section[key] = planted(value, secret, str(file))
    with patch.object(redact, "_known", frozenset()):
        return outcome_of_text(json.dumps(document))


@pytest.mark.parametrize("secret", [SECRET, "${S}"])
@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_secret_is_not_shown(tmp_path: Path, plant: tuple[str, str, Any], secret: str) -> None:
    """G11: wherever a secret belongs, or may land by a slip."""
    document = {"publishers": {"hook": {"type": "http"}}}
    assert SECRET not in seen_with([plant], document, secret, tmp_path / "secret")


@SLOW
@given(NEARLY, st.lists(st.sampled_from(PLANTS), min_size=1, max_size=4), st.sampled_from([SECRET, "${S}"]))
def test_no_planted_secret_is_shown_however_broken_the_rest_is(
    tmp_path: Path, document: Any, plants: list[tuple[str, str, Any]], secret: str
) -> None:
    """G11: not in a problem, not in a traceback, not in a repr or a warning."""
    assert SECRET not in seen_with(plants, document, secret, tmp_path / "secret")
