"""SIGHUP, with real forks: slot by slot, stopped by the first that does not come up, and no signal lost meanwhile."""

import os
import random
import signal
import time

import pytest

from tests.lifecycle.supervised import Start, Supervised, is_sleeping
from tests.services.wait import wait_for

SEED = 20_240_601
FULL = os.environ.get("OUTBOXD_CHAOS") == "full"
RELOADS = 100 if FULL else 12


def at(line: dict[str, object]) -> str:
    """The line in short."""
    return f"{line['event'].removeprefix('worker_')} {line['worker']}"  # type: ignore[attr-defined]


def untouched(daemon: Supervised, before: dict[str, int]) -> None:
    """The same processes run as before, and it still ends as it should."""
    assert daemon.running() == before
    daemon.signal()
    assert daemon.end()[0] == 0


def test_a_reload_renews_one_worker_after_the_other(start: Start) -> None:
    """G5: what each has in flight is finished, and only one is away at a time; totals go on."""
    daemon = start("--behaviour", "busy", "--tick", "totals")
    before = daemon.workers()
    daemon.reload("--behaviour", "busy")
    daemon.wait_for("reload_finished")
    after = daemon.running()
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    told = [line for line in daemon.lines() if line["level"] == "info"]
    lines = [at(line) for line in told if line["event"] in ("worker_exited", "worker_started")]
    assert lines[3:] == [f"{what} lane-0{number}" for number in (1, 2, 3) for what in ("exited", "started")]
    assert {line["how"] for line in daemon.lines("worker_exited")} == {"exit status 0"}
    daemon.signal()
    assert daemon.end()[0] == 0
    assert daemon.totals() == dict.fromkeys(range(3), ("DONE", 2, 2))
    assert len(daemon.lines("worker_started", "check")) == 1, "an errand is no worker, and is not replaced"


BUG = "RuntimeError: the loader has a bug"


@pytest.mark.parametrize(
    ("file", "expected"), [("bad\nlanes: no\nlog.level: no", ["lanes: no", "log.level: no"]), ("bug", [BUG])]
)
def test_a_bad_configuration_is_refused_and_nothing_changes(start: Start, file: str, expected: list[str]) -> None:
    """Each problem is a line. Not even a failure of the loader itself may end what runs."""
    daemon = start()
    before = daemon.workers()
    daemon.reload(file)
    assert [line["error"] for line in daemon.wait_for("reload_refused", len(expected))] == expected
    assert daemon.workers() == before
    daemon.reload()
    daemon.wait_for("reload_finished")
    assert daemon.running().keys() == before.keys()
    daemon.signal()
    assert daemon.end()[0] == 0


def test_what_the_check_refuses_changes_nothing(start: Start) -> None:
    """A table that is missing is found before the first worker is asked to go."""
    daemon = start()
    before = daemon.workers()
    daemon.reload("--check", "finds_something")
    assert daemon.wait_for("reload_refused")[0]["error"] == "the table is missing"
    daemon.signal(signal.SIGUSR1)
    daemon.wait_for("worker_status", 3)
    assert daemon.lines("config_warning") == [], "nothing was accepted"
    untouched(daemon, before)


def test_workers_are_added_and_removed_and_what_they_had_counted_stays(start: Start) -> None:
    """A lane more, a lane less, another concurrency: each name keeps its slot."""
    daemon = start("--workers", "2", "--behaviour", "busy", "--tick", "totals")
    daemon.workers(2)
    for reloads, workers in enumerate((3, 1, 2), start=1):
        daemon.reload("--workers", str(workers), "--behaviour", "busy")
        daemon.wait_for("reload_finished", reloads)
        assert len(daemon.running()) == workers == len(daemon.children())
    daemon.signal()
    assert daemon.end()[0] == 0
    assert daemon.totals() == {0: ("DONE", 4, 4), 1: ("DONE", 3, 3), 2: ("DONE", 1, 1)}
    assert [line["removed"] for line in daemon.lines("reload_finished")] == [0, 2, 0]


def test_more_workers_than_there_is_room_for_are_refused(start: Start) -> None:
    """The map that all children share cannot grow; whoever needs that many says it at the start."""
    daemon = start("--workers", "1")
    before = daemon.workers(1)
    daemon.reload("--workers", "1026")
    assert "no room left for 1025 more workers" in daemon.wait_for("reload_refused")[0]["error"]
    untouched(daemon, before)


def test_sighup_during_a_reload_is_remembered_once(start: Start) -> None:
    """The file may have changed since it was read; ten more signals are one more reload, not ten."""
    daemon = start("--behaviour", "idle,busy,idle")
    daemon.workers()
    daemon.reload()
    daemon.wait_for("worker_started", 4)
    for _ in range(10):
        daemon.reload("--behaviour", "idle", "--workers", "2")
    daemon.wait_for("reload_finished", 2)
    assert daemon.running().keys() == {"lane-01", "lane-02"}
    daemon.signal()
    assert daemon.end()[0] == 0
    assert len(daemon.lines("reload_started")) == 2


def test_sigterm_during_a_reload_drains_everything(start: Start) -> None:
    """G5: at any moment of it, in time, with 0, and leaving nobody."""
    chance = random.Random(SEED)
    for _ in range(12 if FULL else 2):
        daemon = start("--behaviour", "busy", "--workers", "2", "--drain-limit", "3")
        daemon.workers(2)
        daemon.reload("--behaviour", "busy", "--workers", "3", "--drain-limit", "3")
        until_s = time.monotonic() + chance.random() * 1.3
        wait_for(lambda at_s=until_s: time.monotonic() >= at_s, 3.0, "the moment")  # type: ignore[misc]
        daemon.signal()
        status, took_s = daemon.end()
        assert (status, daemon.left_behind()) == (0, [])
        assert took_s < 1.0
        assert daemon.lines("worker_killed") == []


def test_sigterm_does_not_wait_for_the_check(start: Start) -> None:
    """G5: a database that does not answer may hold up a reload, not the end."""
    daemon = start("--behaviour", "idle")
    daemon.workers()
    daemon.reload("--check", "takes_for_ever")
    wait_for(lambda: len(daemon.children()) == 4 and all(map(is_sleeping, daemon.children())), 5.0, "the check to run")
    daemon.signal()
    status, took_s = daemon.end()
    assert (status, daemon.left_behind()) == (0, [])
    assert took_s < 1.0


@pytest.mark.parametrize("check", ["takes_for_ever", "crash_at_boot"])
def test_a_check_that_fails_itself_refuses_nothing(start: Start, check: str) -> None:
    """As at the start: the workers meet whatever it met, and have a log to tell it."""
    daemon = start()
    daemon.workers()
    daemon.reload("--check", check, "--startup-timeout", "0.5")
    daemon.wait_for("reload_finished")
    daemon.signal()
    assert daemon.end()[0] == 0


def test_an_old_worker_that_does_not_go_is_killed_and_replaced(start: Start) -> None:
    """Its limit is the one that it was started with. At the end nobody has to be killed, so the status is 0."""
    daemon = start("--behaviour", "stubborn,idle", "--drain-limit", "0.5")
    daemon.workers()
    daemon.reload("--behaviour", "idle", "--drain-limit", "7")
    daemon.wait_for("reload_finished")
    assert [line["worker"] for line in daemon.lines("worker_killed")] == ["lane-01"]
    daemon.reload("--behaviour", "idle", "--drain-limit", "3")
    daemon.wait_for("reload_finished", 2)
    daemon.signal()
    assert daemon.end()[0] == 0
    assert daemon.wait_for("drain_started")[0]["limit_s"] == 3, "the budget follows the new settings"


def test_the_end_during_a_reload_has_time_for_the_old_and_the_new(start: Start) -> None:
    """G5: the longer of both budgets, for there are workers of both kinds."""
    daemon = start("--behaviour", "idle,slow", "--drain-limit", "4")
    daemon.workers()
    daemon.reload("--drain-limit", "9")
    daemon.wait_for("worker_started", 2, "lane-01")  # and now the second one drains
    daemon.signal()
    assert daemon.wait_for("drain_started")[0]["limit_s"] == 9


def test_a_slot_that_backs_off_starts_at_once_with_the_new_settings(start: Start) -> None:
    """A person who has mended the configuration does not wait for half a minute."""
    daemon = start("--behaviour", "crash_at_boot,idle", "--backoff", "60")
    daemon.wait_for("worker_restarting")
    daemon.wait_for("worker_started", 3)
    daemon.reload("--behaviour", "idle")
    daemon.wait_for("reload_finished")
    assert len(daemon.running()) == 3


def test_a_crash_elsewhere_during_a_reload_is_mended_as_ever(start: Start) -> None:
    """The reload waits for one worker; the supervisor still watches all."""
    daemon = start("--behaviour", "slow,idle,idle", "--drain-limit", "60")
    workers = daemon.workers()
    daemon.reload()
    wait_for(lambda: daemon.lines("config_warning"), 5.0, "the reload to begin")
    os.kill(workers["lane-03"], signal.SIGKILL)
    daemon.wait_for("worker_started", 2, "lane-03")
    assert daemon.running()["lane-02"] == workers["lane-02"]
    assert daemon.lines("reload_stopped") == []


def test_hup_and_usr1_to_the_whole_group_are_the_supervisors_alone(start: Start) -> None:
    """`systemctl kill -s HUP` and a terminal that closes signal the workers too."""
    daemon = start()
    before = daemon.workers()
    os.killpg(daemon.pid, signal.SIGUSR1)
    daemon.wait_for("worker_status", 3)
    daemon.plan.write_text("bad\nno", encoding="utf-8")
    os.killpg(daemon.pid, signal.SIGHUP)
    daemon.wait_for("reload_refused")
    untouched(daemon, before)


def test_a_run_that_ends_by_itself_drains_when_its_terminal_closes(start: Start) -> None:
    """It has nothing to reload, workers that are done are not started again: SIGHUP means what it always meant."""
    daemon = start("--until-done", "--behaviour", "busy", "--tick", "totals")
    daemon.workers()
    daemon.reload()
    assert daemon.end()[0] == 0
    assert daemon.lines("reload_started") == []
    assert [delivered for _, _, delivered in daemon.totals().values()] == [1, 1, 1]


def test_many_reloads_leave_nothing_behind(start: Start) -> None:
    """G9: no descriptor, process or slot is lost when the settings change."""
    daemon = start("--workers", "1", "--tick", "totals")
    daemon.workers(1)
    descriptors = sorted(os.listdir(f"/proc/{daemon.pid}/fd"))
    for reloads in range(1, RELOADS + 1):
        daemon.reload("--workers", str(1 + reloads % 2))
        daemon.wait_for("reload_finished", reloads)
    assert sorted(os.listdir(f"/proc/{daemon.pid}/fd")) == descriptors
    assert len(daemon.children()) == 1
    daemon.signal()
    assert (daemon.end()[0], daemon.left_behind()) == (0, [])
    assert {slot: starts for slot, (_, starts, _) in daemon.totals().items()} == {0: RELOADS + 1, 1: RELOADS // 2}
