"""The log, as a program with a real standard error writes it."""

import datetime
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from select import PIPE_BUF
from typing import Any

import pytest

from outboxd import log
from tests.services.wait import wait_for

ROOT = Path(__file__).parents[2]
CONFIGURED = "import os, sys, logging; from outboxd import log, redact; log.configure({!r}, {!r}, 'node-a')\n"


def command(program: str, level: str = "debug", format: str = "json") -> list[str]:
    """How to run a program that has configured its log."""
    return [sys.executable, "-c", CONFIGURED.format(level, format) + program]


def stderr_of(program: str, level: str = "debug", format: str = "json") -> str:
    """What it wrote on standard error; it must have ended well."""
    run = subprocess.run(
        command(program, level, format),
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "TZ": "America/Los_Angeles"},
        check=False,
    )
    text = run.stderr.decode("utf-8")
    assert run.returncode == 0, text
    return text


def lines_of(program: str, level: str = "debug") -> list[dict[str, Any]]:
    """The lines that it logged."""
    return [json.loads(line) for line in stderr_of(program, level).splitlines()]


def test_every_event_name_is_listed_with_its_meaning() -> None:
    """Alerts and searches are built on these names; the documentation lists them from here."""
    names = {value for name, value in vars(log).items() if re.fullmatch("[A-Z][A-Z_]+", name) and type(value) is str}
    assert names == set(log.EVENTS)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)+", name) for name in names)
    assert all(meaning and "\n" not in meaning for meaning in log.EVENTS.values())


def test_a_line_says_when_how_bad_what_who_and_where() -> None:
    """G12: the time is UTC, whatever the time zone of the process. Facts keep their types."""
    (line,) = lines_of(
        "log.bind(worker='room_outbox-01')\n"
        "log.warning(log.LEASE_LOST, event_id='e-1', retry_count=2, ok=True, age_s=None, lanes=('a', 'b'))"
    )
    assert list(line)[:5] == ["time", "level", "event", "worker", "node_id"]
    moment = line.pop("time")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", moment)
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(moment)
    assert abs(age) < datetime.timedelta(minutes=1)
    assert line == {
        "level": "warning", "event": "lease_lost", "worker": "room_outbox-01", "node_id": "node-a", "event_id": "e-1",
        "retry_count": 2, "ok": True, "age_s": None, "lanes": ["a", "b"],
    }  # fmt: skip


def test_a_field_worker_stands_in_place_of_the_bound_name() -> None:
    """The supervisor speaks about its workers."""
    (line,) = lines_of("log.bind(worker='supervisor')\nlog.info(log.WORKER_EXITED, worker='room_outbox-01')")
    assert line["worker"] == "room_outbox-01"


@pytest.mark.parametrize(("level", "count"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_lines_below_the_level_are_left_out(level: str, count: int) -> None:
    """`log.level`."""
    program = "for write in log.debug, log.info, log.warning, log.error: write(log.LEASE_LOST)"
    assert len(lines_of(program, level)) == count


def test_secrets_are_hidden_wherever_they_stand() -> None:
    """G11: in fields, exceptions and their tracebacks, and in what libraries say."""
    text = stderr_of(
        "redact.register(['swordfish'])\n"
        "log.info(log.CONFIG_WARNING, url='mysql://u:pw1@db/x?key=pw2', words=['swordfish'])\n"
        "try: raise ValueError('cannot open mysql://u:pw3@db with swordfish')\n"
        "except ValueError as error: log.error(log.WORKER_CRASHED, exception=error)\n"
        "logging.getLogger('library').warning('at %s', 'http://u:pw4@host')\n"
    )
    assert len(text.splitlines()) == 3
    assert re.findall("pw.|swordfish", text) == []


def test_an_exception_shows_its_text_and_where_it_came_from() -> None:
    """A person must act, and needs both."""
    (line,) = lines_of("try: 1 / 0\nexcept ZeroDivisionError as error: log.error(log.WORKER_CRASHED, exception=error)")
    assert (line["level"], line["error"]) == ("error", "ZeroDivisionError: division by zero")
    assert line["traceback"].splitlines()[0] == "Traceback (most recent call last):"
    assert line["traceback"].splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_what_libraries_say_comes_along_from_info_up() -> None:
    """Their debug lines are many and not ours to bound (G9); a user's own publisher logs at info."""
    program = "log.debug(log.LEASE_LOST)\nfor n in 10, 20, 40: logging.getLogger('their.module').log(n, 'said %s', n)"
    lines = [line for line in lines_of(program) if line["event"] == "library_message"]
    assert [(line["level"], line["logger"], line["message"]) for line in lines] == [
        ("info", "their.module", "said 20"),
        ("error", "their.module", "said 40"),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        "error='x' * 100_000",
        "error='é\\n\\x1b[31m' * 5000",
        "**{f'field_{n}': 'y' * 3000 for n in range(50)}",
        "**{f'field_{n}': 'y' * 3000 for n in range(500)}",
        "ids=list(range(100_000))",
        "ids=[['z' * 1000] * 100] * 100",
        "error='\\ud800 lone', ratio=float('nan'), envelope=b'\\xff\\x00'",
    ],
)
def test_a_line_is_one_valid_line_within_pipe_buf_whatever_the_fields(fields: str) -> None:
    """G9: lines of several processes on one pipe mix as soon as one is longer."""
    text = stderr_of(f"log.error(log.OUTBOX_DEAD_LETTER, {fields})")
    assert text.count("\n") == 1
    assert len(text.encode()) <= PIPE_BUF
    assert json.loads(text)["event"] == "outbox_dead_letter"


def test_a_field_that_cannot_be_shown_costs_only_the_fields() -> None:
    """Whoever logs must not fail because of it."""
    program = "class Bad:\n def __str__(self): raise ValueError\nlog.info(log.LEASE_LOST, bad=Bad())"
    assert [(line["event"], line["unprintable"]) for line in lines_of(program)] == [("lease_lost", "ValueError")]


def test_lines_of_several_processes_on_one_pipe_do_not_mix() -> None:
    """A supervisor and its workers share one standard error.

    The pipe holds all that they write: a reader that the machine holds up for long costs lines, as it should, and
    that is another test's matter.
    """
    program = (
        f"import fcntl; fcntl.fcntl(2, fcntl.F_SETPIPE_SZ, {1 << 20})\n"
        "for worker in range(6):\n"
        "  if os.fork() == 0:\n"
        "    log.bind(worker=str(worker))\n"
        "    for n in range(100): log.info(log.LEASE_LOST, n=n, filler='x' * (n * 15))\n"
        "    os._exit(0)\n"
        "for worker in range(6): os.wait()"
    )
    found = sorted((int(line["worker"]), line["n"]) for line in lines_of(program))
    assert found == [(worker, n) for worker in range(6) for n in range(100)]


def test_console_lines_are_for_the_eye() -> None:
    """One line, short time, fields as words; what could confuse a terminal is quoted."""
    program = (
        "log.bind(worker='w-01')\nlog.info(log.LEASE_LOST, event_id='e-1', n=3, error='a \"b\"\\n\\x1b[31m', none='')"
    )
    text = stderr_of(program, format="console")
    tail = ' info    w-01 lease_lost event_id=e-1 n=3 error="a \\"b\\"\\\\n\\\\x1b[31m" none=""' + "\n"
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}", text[:12])
    assert text[12:] == tail


def test_on_a_console_a_traceback_stands_below_its_line() -> None:
    """As a person knows it."""
    program = "try: 1 / 0\nexcept ZeroDivisionError as error: log.error(log.WORKER_CRASHED, exception=error)"
    lines = stderr_of(program, format="console").splitlines()
    assert lines[0].endswith("""- worker_crashed error="ZeroDivisionError: division by zero\"""")
    assert (lines[1], lines[-1]) == ("Traceback (most recent call last):", "ZeroDivisionError: division by zero")


def test_a_reader_that_is_gone_costs_lines_only() -> None:
    """G9: the daemon outlives whatever collects its log."""
    read, write = os.pipe()
    os.close(read)
    program = "for n in range(1000): log.error(log.LEASE_LOST)\nprint('alive')"
    with os.fdopen(write, "wb") as stderr:
        run = subprocess.run(
            command(program), stdout=subprocess.PIPE, stderr=stderr, cwd=ROOT, timeout=20, text=True, check=False
        )
    assert (run.returncode, run.stdout) == (0, "alive\n")


def test_a_full_disk_costs_lines_only() -> None:
    """G1: a full disk stops no relay."""
    with Path("/dev/full").open("wb") as stderr:
        run = subprocess.run(command("log.error(log.LEASE_LOST)"), stderr=stderr, cwd=ROOT, timeout=20, check=False)
    assert run.returncode == 0


def test_a_closed_standard_error_does_not_turn_into_someone_elses_file(tmp_path: Path) -> None:
    """Else the next file or connection opened would be descriptor 2 and get the log as its data."""
    program = f"file = open({str(tmp_path / 'data')!r}, 'w')\nlog.error(log.LEASE_LOST)\nfile.write('mine')"
    run = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", *command(program)], cwd=ROOT, timeout=20, check=False)
    assert run.returncode == 0
    assert (tmp_path / "data").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_reader_that_does_not_read_neither_blocks_nor_hides_what_was_lost(kind: str) -> None:
    """systemd's journal is a socket, Docker's a pipe; either may stand still, and go on later."""
    if kind == "pipe":
        read, write = os.pipe()
    else:
        read, write = (end.detach() for end in socket.socketpair())
    program = (
        "for n in range(5000): log.info(log.LEASE_LOST, n=n)\n"
        "print('alive', os.get_blocking(2), flush=True)\n"
        "sys.stdin.read(1)\n"
        "log.info(log.BREAKER_CLOSED)\n"
    )
    process = subprocess.Popen(
        command(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=write, cwd=ROOT, text=True
    )
    os.close(write)
    with os.fdopen(read, "rb") as reader, process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "alive True\n", "it must not change the descriptor that others share"
        kept = b""
        while kept.count(b"\n") < 10:
            kept += os.read(reader.fileno(), 1 << 20)
        process.stdin.write("\n")
        process.stdin.close()
        kept += reader.read()
    lines = [json.loads(line) for line in kept.splitlines()]
    lost, last = lines[-2:]
    assert (lost["event"], lost["level"], last["event"]) == ("log_lines_lost", "warning", "breaker_closed")
    assert lost["count"] + len(lines) - 2 == 5000
    wait_for(lambda: process.returncode == 0, 5.0, "the program to end well")
