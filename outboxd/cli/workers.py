"""What the daemon on this machine tells of its workers, for `outboxd status`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outboxd.cli import show
from outboxd.cli.ask import Unanswered, ask
from outboxd.config.schema import Config

TITLES = ("worker", "state", "pid", "in flight", "delivered", "dead", "restarts")
NUMBERS = TITLES[2:]
OF_ITSELF = ("node_id", "version", "draining", "database_up", "bridge")
OF_A_LANE = ("workers", "breakers")


@dataclass(frozen=True, slots=True)
class Daemon:
    """told: of itself. lanes: what it tells of each, by name. problem: why it tells nothing, "" if it does."""

    socket: str
    told: Mapping[str, Any] = field(default_factory=dict)
    lanes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    problem: str = ""


def ask_daemon(config: Config) -> Daemon:
    """Ask it. It may be gone, be somebody else's, or run with another configuration."""
    path = config.admin.socket
    try:
        told = ask(path, "/api/lanes")
        lanes = {lane["lane"]: {name: lane[name] for name in OF_A_LANE} for lane in told["lanes"]}
        of_itself = {name: told[name] for name in OF_ITSELF}
    except Unanswered as failure:
        return Daemon(path, problem=str(failure))
    except (LookupError, TypeError):
        return Daemon(path, problem="it is of another version")
    return Daemon(path, of_itself, lanes)


def document(daemon: Daemon) -> dict[str, object]:
    """What it tells of itself, for programs."""
    return {"daemon": daemon.told or None, "daemon_problem": daemon.problem or None}


def of_lane(daemon: Daemon, lane: str) -> Mapping[str, object]:
    """What it tells of a lane, for programs; null where it tells nothing."""
    return daemon.lanes.get(lane, dict.fromkeys(OF_A_LANE))


def show_workers(daemon: Daemon) -> None:
    """For people."""
    if daemon.problem:
        show.line(f"the daemon does not answer at {daemon.socket} ({daemon.problem}): numbers from the tables")
        return
    of_lanes = [worker for lane in daemon.lanes.values() for worker in lane["workers"]]
    rows = [_row(worker) for worker in (*of_lanes, *daemon.told["bridge"])]
    if rows:
        show.line()
        show.table(TITLES, rows, NUMBERS)
    for name, lane in daemon.lanes.items():
        for publisher, count in lane["breakers"].items():
            if count:
                workers = len(lane["workers"])
                show.line(f"{publisher} rests, since it kept failing: in {count} of {workers} workers of {name}")
    if daemon.told["draining"]:
        show.line("the daemon is ending: it finishes what is in flight")
    if not daemon.told["database_up"]:
        show.line("the daemon does not reach the database")


def _row(worker: Mapping[str, Any]) -> tuple[str, ...]:
    totals, restarts = worker["totals"], sum(worker["restarts"].values())
    numbers = (worker["in_flight"], totals["delivered"], totals["dead"], restarts)
    return (worker["worker"], worker["state"], str(worker["pid"] or "-"), *(f"{number:,}" for number in numbers))
