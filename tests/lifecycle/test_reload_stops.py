"""A reload whose new workers do not come up, or not for long: it stops, and what was there before is there again."""

import pytest

from tests.lifecycle.supervised import Start
from tests.services.wait import wait_for


@pytest.mark.parametrize(
    ("behaviour", "number"),
    [
        ("crash_at_boot", 1),
        ("crash_at_boot", 3),
        ("hung_at_boot", 2),
        ("beats_without_coming_up", 2),
        ("refused", 1),
        ("done", 3),
    ],
)
def test_the_first_that_does_not_come_up_stops_the_reload(start: Start, behaviour: str, number: int) -> None:
    """Those before it keep the new settings, it goes back to the old ones, the others are never asked to go."""
    daemon = start()
    before = daemon.workers()
    behaviours = ["idle", "idle", "idle"]
    behaviours[number - 1] = behaviour
    daemon.reload("--behaviour", ",".join(behaviours), "--startup-timeout", "0.4")
    line = daemon.wait_for("reload_stopped")[0]
    failed = f"lane-0{number}"
    assert (line["worker"], line["renewed"], line["kept"]) == (failed, number - 1, 3 - number)
    daemon.wait_for("worker_started", 3, failed)
    after = daemon.workers()
    assert [name for name in sorted(before) if before[name] == after[name]] == sorted(before)[number:]
    daemon.signal()
    assert daemon.end()[0] == 0, "a worker that needs a person ends the reload, not the daemon"


@pytest.mark.parametrize("behaviour", ["up_then_refused", "hung_in_c"])
def test_a_worker_that_fails_after_it_came_up_stops_the_reload_too(start: Start, behaviour: str) -> None:
    """Else a setting that breaks every worker after a moment would reach them all."""
    daemon = start("--behaviour", "idle,slow")
    workers = daemon.workers()
    daemon.reload("--behaviour", f"{behaviour},slow", "--heartbeat-limit", "0.4")
    line = daemon.wait_for("reload_stopped")[0]
    assert (line["worker"], line["renewed"], line["kept"]) == ("lane-01", 0, 2)
    assert "came up, then" in line["error"]
    daemon.wait_for("worker_started", 3, "lane-01")
    assert daemon.running()["lane-03"] == workers["lane-03"]
    assert daemon.lines("drain_started") == []


def test_nothing_more_is_renewed_while_a_new_worker_is_given_up(start: Start) -> None:
    """What is between two settings by then goes back too, and its drain is not cut short."""
    daemon = start("--behaviour", "idle,busy,idle", "--tick", "totals")
    before = daemon.workers()
    daemon.reload("--behaviour", "deaf_in_c,busy,crash_at_boot", "--heartbeat-limit", "0.3")
    line = daemon.wait_for("reload_stopped")[0]
    assert (line["worker"], line["renewed"], line["kept"]) == ("lane-01", 0, 2)
    assert daemon.workers()["lane-03"] == before["lane-03"]
    assert daemon.lines("worker_crashed") == []
    daemon.wait_for("worker_started", 3, "lane-02")
    daemon.workers()
    daemon.signal()
    assert daemon.end()[0] == 0
    assert daemon.totals()[1] == ("DONE", 3, 3), "the old settings, the new ones, and the old ones again"
    assert {line["worker"] for line in daemon.lines("worker_killed")} == {"lane-01"}


def test_a_worker_that_is_refused_just_after_it_came_up_stops_the_reload(start: Start) -> None:
    """Its database tells it when it has connected: the last one is waited for, too, before the others go."""
    daemon = start("--workers", "2")
    before = daemon.workers(2)
    daemon.reload("--workers", "1", "--behaviour", "up_then_refused", "--settle", "5")
    assert daemon.wait_for("reload_stopped")[0]["worker"] == "lane-01"
    daemon.wait_for("worker_started", 3, "lane-01")
    assert daemon.workers(2)["lane-02"] == before["lane-02"]
    daemon.signal()
    assert daemon.end()[0] == 0


def test_a_new_worker_that_does_not_come_up_is_taken_away_again(start: Start) -> None:
    """There is nothing to go back to; and the one that was to go for it has not gone."""
    daemon = start("--workers", "2", "--tick", "totals")
    before = daemon.workers(2)
    daemon.reload("--lanes", "2", "--workers", "2", "--behaviour", "idle,crash_at_boot")
    line = daemon.wait_for("reload_stopped")[0]
    assert (line["worker"], line["renewed"], line["kept"]) == ("lane2-01", 1, 1)
    assert daemon.running()["lane-02"] == before["lane-02"]
    wait_for(lambda: daemon.totals()[2][0] == "DONE", 5.0, "its slot to be given up")
    daemon.reload("--lanes", "2", "--workers", "2")
    daemon.wait_for("reload_finished")
    assert daemon.running().keys() == {"lane-01", "lane2-01"}
    daemon.signal()
    assert daemon.end()[0] == 0
    assert daemon.totals()[2][1] == 2, "the slot of the failed one was used again"


def test_a_new_worker_that_is_still_being_taken_away_can_be_added_again(start: Start) -> None:
    """A person mends the file and sends SIGHUP at once: the name is free when its process has ended, not before."""
    daemon = start("--workers", "1")
    daemon.workers(1)
    daemon.reload("--workers", "2", "--behaviour", "idle,deaf_and_never_up", "--startup-timeout", "0.4")
    daemon.wait_for("worker_started", 1, "lane-02")
    daemon.reload("--workers", "2")
    daemon.wait_for("reload_finished")
    assert [line["worker"] for line in daemon.lines("reload_stopped")] == ["lane-02"]
    assert daemon.running().keys() == {"lane-01", "lane-02"}
    daemon.signal()
    assert daemon.end()[0] == 0
