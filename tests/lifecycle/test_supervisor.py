"""What the supervisor promises, with real forks and real signals: the list that solid_queue's lifecycle tests set."""

import os
import signal
import time
from pathlib import Path

import pytest

from outboxd.supervisor.loop import ONE_ASKING_S
from tests.lifecycle.supervised import Start, is_running, process_state
from tests.services.wait import wait_for


def test_sigterm_lets_every_worker_finish_what_is_in_flight(start: Start) -> None:
    """G5: a stop loses nothing and asks every worker at once, not one after the other."""
    daemon = start("--behaviour", "busy", "--tick", "totals")
    daemon.workers()
    daemon.signal()
    status, took_s = daemon.end()
    assert (status, daemon.left_behind()) == (0, [])
    assert daemon.totals() == dict.fromkeys(range(3), ("DONE", 1, 1))
    assert 0.3 < took_s < 1.15
    assert [line["event"] for line in daemon.lines(worker="supervisor")][-3:] == [
        "drain_started", "drain_finished", "supervisor_stopped",
    ]  # fmt: skip


def test_who_ends_last_has_the_rest_of_the_drains_time(start: Start) -> None:
    """G5: on a busy machine the admin role may still be starting when it is to end; that is no failed stop."""
    daemon = start("--workers", "1", "--last", "leisurely", "--drain-limit", "10")
    daemon.workers(2)
    daemon.signal()
    assert (daemon.end()[0], daemon.left_behind()) == (0, [])
    assert daemon.lines("worker_killed") == []
    assert [line["worker"] for line in daemon.lines("worker_exited")] == ["lane-01", "last"]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_still_drains(start: Start, signum: int) -> None:
    """G5: Ctrl-C, timeout(1) and some service managers signal the workers too; that is no second signal."""
    daemon = start("--behaviour", "busy", "--tick", "totals")
    daemon.workers()
    os.killpg(daemon.pid, signum)
    assert daemon.end()[0] == 0
    assert [delivered for _, _, delivered in daemon.totals().values()] == [1, 1, 1]


def test_sigterm_five_times_ends_it_at_once(start: Start) -> None:
    """G5: a second signal does not wait for what is in flight, and workers that listen need not be killed."""
    daemon = start("--behaviour", "slow", "--drain-limit", "60")
    daemon.workers()
    daemon.signal()
    daemon.wait_for("drain_started")
    for _ in range(4):
        time.sleep(ONE_ASKING_S / 3)  # in a burst they would count as one asking
        daemon.signal()
    status, took_s = daemon.end()
    assert (status, daemon.left_behind()) == (0, [])
    assert took_s < 1.0


def test_a_second_signal_ends_workers_that_do_not_listen(start: Start) -> None:
    """G5: at once means within a second, whatever a worker does."""
    daemon = start("--behaviour", "stubborn,idle", "--drain-limit", "60")
    daemon.workers()
    daemon.signal()
    daemon.wait_for("drain_started")
    daemon.signal(signal.SIGINT)
    status, took_s = daemon.end()
    assert (status, daemon.left_behind()) == (1, [])
    assert took_s < 1.0


def test_the_same_signal_twice_in_a_moment_is_one_asking(start: Start) -> None:
    """G5: `timeout` signals the process and then its group; publishes in flight must not be cut off for that."""
    daemon = start("--behaviour", "busy,idle")
    daemon.workers(2)
    daemon.signal()
    daemon.wait_for("drain_started")
    daemon.signal()
    status, _ = daemon.end()
    assert (status, daemon.lines("drain_hurried"), daemon.lines("worker_killed")) == (0, [], [])


def test_a_worker_that_does_not_end_in_time_is_killed(start: Start) -> None:
    """G5: the end comes by the limit, with status 1; the limit is one for all, and the others finish within it."""
    daemon = start("--behaviour", "stubborn,busy,idle", "--drain-limit", "0.7", "--tick", "totals")
    workers = daemon.workers()
    os.kill(workers["lane-03"], signal.SIGSTOP)
    daemon.signal()
    status, took_s = daemon.end()
    assert (status, daemon.left_behind()) == (1, [])
    assert 0.6 < took_s < 1.5
    assert [line["worker"] for line in daemon.lines("worker_killed")] == ["lane-01", "lane-03"]
    assert daemon.totals()[1] == ("DONE", 1, 1)


def test_a_worker_that_ends_by_itself_is_replaced_without_backoff(start: Start) -> None:
    """A worn-out worker ends with 0 to be replaced: that is no failure, but it may not become a busy loop either."""
    daemon = start("--workers", "1", "--behaviour", "done", "--backoff", "0.15")
    restarts = daemon.wait_for("worker_restarting", 5)
    assert [line["failures"] for line in restarts[:5]] == [0] * 5
    assert all(0.1 < line["delay_s"] <= 0.15 for line in restarts)
    assert {line["level"] for line in daemon.lines("worker_exited")} == {"info"}


@pytest.mark.parametrize(
    ("signum", "level", "how"),
    [(signal.SIGTERM, "info", "exit status 0"), (signal.SIGKILL, "error", "killed (out of memory?)")],
)
def test_one_worker_that_is_signalled_by_hand_is_replaced(start: Start, signum: int, level: str, how: str) -> None:
    """The others go on undisturbed; a SIGKILL that was not ours is shown to a person."""
    daemon = start()
    before = daemon.workers()
    os.kill(before["lane-02"], signum)
    daemon.wait_for("worker_started", 2, "lane-02")
    exits = daemon.lines("worker_exited")
    assert [(line["worker"], line["level"], line["how"]) for line in exits] == [("lane-02", level, how)]
    after = daemon.workers()
    assert {name for name in before if before[name] != after[name]} == {"lane-02"}
    daemon.signal()
    assert daemon.end()[0] == 0


def test_workers_end_when_the_supervisor_is_killed(start: Start) -> None:
    """G2: an orphan that went on would compete with the workers of the next supervisor, seen by nobody."""
    daemon = start("--behaviour", "busy,told_by_the_kernel,orphan_guard")
    workers = daemon.workers()
    daemon.signal(signal.SIGKILL)
    daemon.end()
    wait_for(lambda: not any(is_running(pid) for pid in workers.values()), 2.0, "the workers to end")


def test_sigterm_during_the_boot_is_never_lost(start: Start) -> None:
    """A signal between fork and the child's handlers would leave a worker that nobody asks to stop: 60 boots."""
    daemon = start("--boots", "60", "--drain-limit", "3")
    assert (daemon.end(30)[0], daemon.left_behind()) == (0, [])
    assert len(daemon.lines("drain_started")) == 60
    assert daemon.lines("worker_killed") == []
    assert len(daemon.lines("worker_started")) > 60, "the signal always came before the first fork"


RESTARTS = 1000 if os.environ.get("OUTBOXD_CHAOS") == "full" else 100


def test_many_restarts_leave_nothing_behind(start: Start) -> None:
    """G9: no descriptor, process, thread or slot is lost when a worker dies."""
    daemon = start("--behaviour", "crash_at_boot,idle", "--workers", "2", "--backoff", "0.002", "--tick", "totals")
    daemon.wait_for("worker_started", 3)
    descriptors = sorted(os.listdir(f"/proc/{daemon.pid}/fd"))
    daemon.wait_for("worker_exited", RESTARTS, timeout_s=120)
    assert sorted(os.listdir(f"/proc/{daemon.pid}/fd")) == descriptors
    assert os.listdir(f"/proc/{daemon.pid}/task") == [str(daemon.pid)]
    assert len(daemon.children()) <= 2
    daemon.signal()
    assert (daemon.end()[0], daemon.left_behind()) == (0, [])
    assert daemon.totals().keys() == {0, 1}
    assert daemon.totals()[1] == ("DONE", 1, 0)
    assert daemon.totals()[0][1] >= RESTARTS


def test_a_crashing_worker_backs_off_and_disturbs_no_other(start: Start) -> None:
    """A broken slot may neither burn the machine nor take healthy workers down."""
    daemon = start("--behaviour", "crash_at_boot,idle")
    restarts = daemon.wait_for("worker_restarting", 4)
    assert [line["failures"] for line in restarts[:4]] == [1, 2, 3, 4]
    assert [line["delay_s"] for line in restarts[:4]] == pytest.approx([0.1, 0.2, 0.4, 0.4], rel=0.101)
    assert {line["worker"] for line in daemon.lines("worker_exited")} == {"lane-01"}
    crash = daemon.lines("worker_crashed")[0]
    assert crash["error"] == "ValueError: this role cannot start"
    assert "in crash_at_boot" in crash["traceback"]
    daemon.signal()
    assert daemon.end()[0] == 0


def test_a_worker_that_needs_a_person_stops_everything(start: Start) -> None:
    """G10: refused credentials end the program with 1, after a drain; no restart would mend them."""
    daemon = start("--behaviour", "idle,refused,busy")
    assert daemon.end()[0] == 1
    assert len(daemon.lines("worker_started", "lane-02")) == 1
    assert [line["error"] for line in daemon.lines("database_refused")] == ["access denied: correct database.url"]
    assert {line["how"] for line in daemon.lines("worker_exited")} == {"exit status 0", "exit status 78"}
    assert daemon.left_behind() == []


def test_the_first_signal_in_a_drain_that_nobody_asked_for_is_no_second_one(start: Start) -> None:
    """G5: a service manager that stops a unit which is already ending must not cut off what is in flight."""
    daemon = start("--behaviour", "slow,refused", "--drain-limit", "60")
    daemon.wait_for("worker_refused")
    daemon.signal(signal.SIGTERM)
    daemon.signal(signal.SIGINT)
    assert daemon.end()[0] == 1
    assert len(daemon.lines("drain_hurried")) == 1


def test_until_done_ends_when_every_worker_is_done_and_totals_outlive_a_crash(start: Start) -> None:
    """`run --until-empty`: done workers are not replaced, crashed ones are, and what they had counted still counts."""
    daemon = start("--behaviour", "done,crash_once", "--until-done", "--tick", "totals")
    assert daemon.end()[0] == 0
    assert daemon.totals() == {0: ("DONE", 1, 0), 1: ("DONE", 2, 2), 2: ("DONE", 2, 2)}
    assert daemon.lines("drain_started") == []


def test_processes_that_are_no_workers_are_reaped_and_ignored(start: Start) -> None:
    """As PID 1 of a container: an inherited process that ends with 78 says nothing about a worker."""
    daemon = start("--behaviour", "leaves_strangers,idle", "--subreaper")
    strangers = daemon.wait_for("stranger_reaped")
    assert process_state(strangers[0]["pid"]) == ""
    assert daemon.lines("worker_exited") == []
    daemon.signal()
    assert daemon.end()[0] == 0


def test_a_worker_holds_none_of_the_supervisors_pipes(start: Start) -> None:
    """A signal to a worker would ring the supervisor's doorbell, and a worker could keep its pipes open for ever."""

    def pipes(pid: int) -> set[str]:
        return {target for fd in Path(f"/proc/{pid}/fd").iterdir() if (target := os.readlink(fd)).startswith("pipe:")}

    daemon = start()
    first, *others = daemon.workers().values()
    assert pipes(daemon.pid)
    assert pipes(first)
    assert not pipes(daemon.pid) & pipes(first)
    assert not any(pipes(first) & pipes(other) for other in others)


def test_a_worker_can_be_told_apart_in_ps(start: Start) -> None:
    """The title is the slot's name, as in the log."""
    workers = start().workers()
    titles = {name: Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip() for name, pid in workers.items()}
    assert titles == {name: name for name in workers}
