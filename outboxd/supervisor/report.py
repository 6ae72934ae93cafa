"""The supervisor's account of its children: for the log, on SIGUSR1, and in a line for the service manager."""

from outboxd import log
from outboxd.supervisor.children import Children
from outboxd.vitals import TOTALS, State

_OURS = (State.STOPPING, State.KILLING)
"""States that the supervisor knows before, or better than, the child."""


def log_slots(children: Children, now_s: float) -> None:
    """One line for each slot, also of workers that are gone: state, ages, what it holds and what it has done."""
    board = children.board
    for index in range(len(board)):
        name, view = board.name(index), board.read(index)
        member = children.find(name)
        ours = member.child.state if member is not None else State.DONE
        is_alive = view.pid != 0
        log.info(
            log.WORKER_STATUS,
            worker=name,
            pid=view.pid or None,
            state=(ours if ours in _OURS or not is_alive else view.state).name.lower(),
            age_s=round(now_s - view.started_s, 1) if is_alive else None,
            heartbeat_age_s=round(max(0.0, now_s - view.heartbeat_s), 3) if is_alive else None,
            starts=view.starts,
            in_flight=view.in_flight,
            **dict(zip(TOTALS, view.totals, strict=True)),
        )


def status_line(children: Children) -> str:
    """The whole daemon in a few words: `4 of 4 workers run, 17 in flight, 120344 delivered, 3 dead letters`."""
    views = [children.board.read(index) for index in range(len(children.board))]
    workers = [member for member in children.workers if member.role.group != member.role.name]  # numbered: not the jobs
    running = sum(member.child.state is State.RUNNING for member in workers)
    return (
        f"{running} of {len(workers)} workers run, {sum(view.in_flight for view in views)} in flight, "
        f"{sum(view.total('delivered') for view in views)} delivered, {sum(view.total('dead') for view in views)} "
        "dead letters"
    )
