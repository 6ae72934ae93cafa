"""The role that runs scheduled jobs, put together."""

from outboxd.config.schema import Config
from outboxd.store import connect
from outboxd.supervisor.spawn import ChildContext, Role
from outboxd.vitals import JOBS

DRAIN_MARGIN_S = 2.0
HEARTBEAT_MARGIN_S = 10.0


def jobs_roles(config: Config, folder: str | None) -> list[Role]:
    """One, or none where this node runs no jobs. folder: for the metrics."""
    if not config.jobs.enabled:
        return []

    def run(context: ChildContext) -> int:
        from outboxd.jobs.lock import open_lock
        from outboxd.jobs.role import run_jobs

        return run_jobs(
            context,
            config.jobs,
            config.lanes,
            config.node_id,
            lambda: connect(config.database),
            lambda: open_lock(config.redis.url, config.database),
            folder,
        )

    # Its loop waits for nobody.
    return [Role(JOBS, run, HEARTBEAT_MARGIN_S, drain_limit_s=config.jobs.drain_timeout_s + DRAIN_MARGIN_S)]
