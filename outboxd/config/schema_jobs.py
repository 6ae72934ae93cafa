"""The settings of the scheduled jobs. Frozen data, no I/O; schema.py has the others."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Whether this node runs scheduled jobs, and how.

    handlers: modules that register handlers of your own. allow_private_targets: may a job call private addresses?
    once_per_tick: jobs of policy 1 run once over all nodes, too. drain_timeout_s: what a running job has left on
    SIGTERM.
    """

    enabled: bool = True
    handlers: tuple[str, ...] = ()
    allow_private_targets: bool = True
    once_per_tick: bool = False
    log_retention_days: int = 90
    drain_timeout_s: float = 10.0
