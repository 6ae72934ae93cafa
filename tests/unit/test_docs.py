"""docs/operations.md says what the program does: every command, option, exit status, signal and event of the log."""

import ast
import dataclasses
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from outboxd import log, table
from outboxd.admin.access import ANY_TOKEN
from outboxd.cli import shared
from outboxd.cli.main import COMMANDS, cli
from outboxd.config import schema
from outboxd.event import PARKED, REASONS, RETRY_LIMIT
from outboxd.explain import story
from outboxd.explain.verdict import CONFIGURATION, EVENT, OPERATOR, RECEIVER, WORKER
from outboxd.metrics import COUNTER, METRICS
from outboxd.store.desk import Overview
from outboxd.supervisor.signals import SUPERVISOR_SIGNALS
from outboxd.vitals import RESTARTS
from tests.services.admin import routes

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text under a heading."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", DOCUMENT, re.DOTALL | re.MULTILINE)
    assert found, f"docs/operations.md has no heading {title}"
    return found[1]


def commands() -> dict[str, click.Command]:
    """Every command by what is typed, those of a group too."""
    found: dict[str, click.Command] = {}
    with click.Context(cli) as ctx:
        for name in COMMANDS:
            command = cli.get_command(ctx, name)
            assert command is not None
            found[f"outboxd {name}"] = command
            if isinstance(command, click.Group):
                found |= {f"outboxd {name} {part}": one for part, one in command.commands.items()}
    return found


def options_of(command: click.Command) -> set[str]:
    return {name for option in command.params if isinstance(option, click.Option) for name in option.opts}


@pytest.mark.parametrize("name", commands())
def test_a_command_is_documented_with_its_options_and_no_others(name: str) -> None:
    """An option that is not documented is not found, one that is no more is looked for."""
    named = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", section(f"`{name}`")))
    assert named - {"--config"} == options_of(commands()[name])


def test_what_stands_everywhere_is_documented() -> None:
    for name in [*shared.EVERYWHERE, "--help", "--json"]:
        assert f"`{name}`" in section("Every command")
    assert "$OUTBOXD_CONFIG" in section("Every command")


def test_every_exit_status_is_documented() -> None:
    rows = re.findall(r"^\| (\d+) \| ", section("Every command"), re.MULTILINE)
    assert [int(row) for row in rows] == [shared.EXIT_DONE, shared.EXIT_FAILED, shared.EXIT_USAGE]


def test_every_event_of_the_log_is_documented_as_it_is_meant() -> None:
    """Alerts are written on these names."""
    rows = re.findall(r"^\| `([a-z_]+)` \| [a-z, ]+ \| (.*) \|$", section("The log"), re.MULTILINE)
    assert dict(rows) == dict(log.EVENTS)


def logged_levels() -> tuple[dict[str, set[str]], set[str]]:
    """Of every event, the levels in the calls that log it; and the events with a call whose level is computed."""
    names = {name: value for name, value in vars(log).items() if isinstance(value, str) and value in log.EVENTS}
    found: dict[str, set[str]] = {event: set() for event in log.EVENTS}
    computed: set[str] = set()
    for path in (ROOT / "outboxd").rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
        for call in calls:
            parts = [part for argument in call.args for part in ast.walk(argument)]
            words = [part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "") for part in parts]
            levels = {word.lower() for word in words if word in ("DEBUG", "INFO", "WARNING", "ERROR")}
            named = getattr(call.func, "attr", "")
            levels |= {named} & set(log.LEVELS)
            for event in (names[word] for word in words if word in names):
                found[event] |= levels
                computed |= {event} if named == "log" and not levels else set()
    return found, computed


def test_every_event_is_documented_with_its_level() -> None:
    """Who sets log.level must know what is left out, and who alerts on `error` what that is."""
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| ([a-z, ]+) \| .* \|$", section("The log"), re.MULTILINE))
    assert rows.pop(log.LIBRARY_MESSAGE) == "its own"
    documented = {event: set(levels.split(", ")) for event, levels in rows.items()}
    logged, computed = logged_levels()
    assert logged.pop(log.LIBRARY_MESSAGE) == set()
    assert documented.keys() == logged.keys()
    fixed = {event for event in logged if event not in computed}
    assert {event: documented[event] for event in fixed} == {event: logged[event] for event in fixed}
    assert {event for event in computed if not logged[event] <= documented[event]} == set()
    assert computed <= {log.WORKER_EXITED}, "say here whose levels only a reader can tell"


def test_every_signal_that_is_handled_is_documented() -> None:
    handled = {signum.name for signum in SUPERVISOR_SIGNALS} - {"SIGCHLD"}
    assert set(re.findall(r"SIG[A-Z0-9]+", section("`outboxd run`"))) == handled


def test_what_the_documents_give_to_copy_is_plain_text() -> None:
    """An ellipsis in an id fails when it is copied: it is no ASCII."""
    for path in (ROOT / "README.md", ROOT / "docs" / "operations.md"):
        blocks = re.findall(r"^```(?:sql|sh)\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        assert blocks
        assert [block for block in blocks if not block.isascii()] == []


def test_what_producers_may_write_fits_as_the_command_line_has_it() -> None:
    """Two places tell how long a column's text may be."""
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| (.*) \|$", section("For producers"), re.MULTILINE))
    told = {name: int(found[1]) for name, text in rows.items() if (found := re.search(r"(?i)at most (\d+) char", text))}
    assert told == table.LIMITS
    assert {name for name, text in rows.items() if "ASCII" in text} == table.ASCII


def test_every_route_of_the_admin_api_is_documented_with_its_permission() -> None:
    """Who writes a token's permissions must know what they are good for."""
    pattern = r"^\| `([A-Z]+) (/[^`]*)` \| (open|any token|`[a-z:]+`) \| .+ \|$"
    rows = re.findall(pattern, section("Routes"), re.MULTILINE)
    documented = {(method, path): permission.strip("`") for method, path, permission in rows}
    found = routes(schema.Config(node_id="node"))
    served = {(method, re.sub(r"<[a-z_]+:", "<", rule)): permission for (method, rule), permission in found.items()}
    assert documented == served
    assert set(served.values()) == {*schema.PERMISSIONS, ANY_TOKEN, "open"}
    assert [name for name in schema.PERMISSIONS if f"`{name}`" not in section("Who may")] == []


def test_every_status_of_the_admin_api_is_documented() -> None:
    """Those that its code names."""
    folder = ROOT / "outboxd" / "admin"
    told = {int(row) for row in re.findall(r"^\| (\d+) \| ", section("Errors"), re.MULTILINE)}
    calls = [node for path in folder.glob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8")))
             if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Refused"]  # fmt: skip
    named = {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)}
    assert named <= told
    assert told == named | {405, 413}, "these two come from Flask"


def test_every_name_in_the_json_of_status_is_documented() -> None:
    names = {field.name for field in dataclasses.fields(Overview)} - {"now_ms"} | {"lane", "enabled", "problem"}
    assert [name for name in sorted(names) if f"`{name}`" not in section("`outboxd status`")] == []


def test_every_name_in_the_json_of_explain_is_documented() -> None:
    names = {field.name for field in dataclasses.fields(story.Story)} | set(story.STATES)
    names |= {EVENT, RECEIVER, CONFIGURATION, WORKER, OPERATOR, "ahead", "workers", "attempts", "max_attempts"}
    assert [name for name in sorted(names) if f"`{name}`" not in section("`outboxd explain`")] == []


def test_every_metric_is_documented_with_its_type_and_labels() -> None:
    """Dashboards and alerts are written on them."""
    rows = re.findall(r"^\| `(outboxd_[a-z_]+)` \| ([a-z]+) \| (.*?) ?\| \S.* \|$", section("Metrics"), re.MULTILINE)
    documented = {name: (kind, tuple(re.findall(r"`([a-z_]+)`", labels))) for name, kind, labels in rows}
    assert len(rows) == len(documented)
    assert documented == {
        f"{metric.name}_total" if metric.kind == COUNTER else metric.name: (metric.kind, metric.labels)
        for metric in METRICS
    }


def test_every_value_of_a_metrics_label_is_documented() -> None:
    """What was not tried, or was dead before it could be, is no failure of a publisher."""
    reasons = re.findall(r"^\| `([a-z_]+)` \| [^|]+ \| [^|]+ \|$", section("Metrics"), re.MULTILINE)
    assert set(reasons) == set(REASONS) - {PARKED, RETRY_LIMIT}
    values = {
        "fresh",
        "scheduled",
        "retrying",
        "delivering",
        "failed",
        "starting",
        "running",
        "stopping",
        "backoff",
        "drain",
    }
    assert [value for value in sorted(values | set(RESTARTS)) if f"`{value}`" not in section("Metrics")] == []


def typed() -> Iterator[list[str]]:
    """Every command of ours that the document gives to be typed: its words behind `outboxd`."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)
    lines = [line for language, block in blocks if language in ("", "sh") for line in block.splitlines()]
    for text in [*lines, *re.findall(r"`(outboxd [^`]+)`", DOCUMENT)]:
        if found := re.search(r"(?:^|-- |exec outboxd )outboxd ([a-z-].*)", text):
            yield shlex.split(found[1], comments=True)


def test_every_command_that_is_given_to_be_typed_exists_with_its_options() -> None:
    """A person in trouble copies it from the runbook."""
    known = commands()
    checked = 0
    for words in typed():
        words = words[2:] if words[0] == "--config" else words
        names = [" ".join(["outboxd", *words[:length]]) for length in (2, 1) if words]
        name = next((name for name in names if name in known), "")
        assert name or not words or words[0].startswith("--"), words
        if name:
            options = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert options <= options_of(known[name]) | set(shared.EVERYWHERE), words
            checked += 1
    assert checked > 30


def test_every_place_that_is_linked_to_is_there() -> None:
    headings = re.findall(r"^#+ (.+)$", DOCUMENT, re.MULTILINE)
    places = {re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", DOCUMENT)) <= places
    files = re.findall(r"\]\(([^)#]+)", DOCUMENT)
    assert [name for name in files if not (ROOT / "docs" / name).exists()] == []
