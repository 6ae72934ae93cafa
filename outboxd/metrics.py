"""Every metric, declared once. Names, units and labels are an interface: dashboards and alerts are written on them."""

from dataclasses import dataclass

from outboxd.tally import AGE_S, LATENCY_S, RUN_S

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. A counter's samples bear `_total` at the end of the name."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...] = ()


PUBLISH_SUCCESS = Metric(
    "outboxd_publish_success", COUNTER, "Publishes that the publisher accepted.", ("lane", "publisher")
)
PUBLISH_FAILURE = Metric(
    "outboxd_publish_failure", COUNTER, "Publishes that failed, by reason.", ("lane", "publisher", "reason")
)
PUBLISH_LATENCY = Metric(
    "outboxd_publish_latency_seconds", HISTOGRAM, "From handing an event to the publisher to its outcome.",
    ("lane", "publisher"), LATENCY_S,
)  # fmt: skip
DELIVERY_LATENCY = Metric(
    "outboxd_delivery_latency_seconds", HISTOGRAM, "From an event's creation to its delivery.", ("lane",), AGE_S
)
CLAIM_LATENCY = Metric(
    "outboxd_claim_latency_seconds", HISTOGRAM, "Transactions that settle and claim.", ("lane",), LATENCY_S
)
SWEEP_SECONDS = Metric(
    "outboxd_sweep_seconds",
    HISTOGRAM,
    "Looks and claims that start from the beginning of the lane.",
    ("lane",),
    LATENCY_S,
)
PENDING_EVENTS = Metric(
    "outboxd_pending_events", GAUGE,
    "Events that wait: fresh ones may be published now, scheduled ones are due later; at most 100,000 are counted.",
    ("lane", "state"),
)  # fmt: skip
COUNT_CAPPED = Metric(
    "outboxd_count_capped",
    GAUGE,
    "1 if a count of the lane's events ended at its limit, so that there are more.",
    ("lane", "count"),
)
OLDEST_PENDING_AGE = Metric(
    "outboxd_oldest_pending_age_seconds",
    GAUGE,
    "Since when the oldest event waits that could have been published.",
    ("lane",),
)
FAILED_EVENTS = Metric(
    "outboxd_failed_events", GAUGE, "Dead letters in the table; at most 100,000 are counted.", ("lane",)
)
BLOCKED_ROOMS = Metric(
    "outboxd_blocked_rooms",
    GAUGE,
    "Rooms with a dead letter in front that nobody has decided about, in lanes with on_dead: block.",
    ("lane",),
)
IN_FLIGHT_EVENTS = Metric("outboxd_in_flight_events", GAUGE, "Events that workers hold.", ("lane",))
BREAKER_OPEN = Metric(
    "outboxd_breaker_open", GAUGE, "Workers whose breaker for the publisher is open.", ("lane", "publisher")
)
WORKERS = Metric("outboxd_workers", GAUGE, "Worker processes by state.", ("lane", "state"))
DATABASE_UP = Metric("outboxd_database_up", GAUGE, "1 if the database answers the admin role.", ())
INFO = Metric(
    "outboxd_build_info", GAUGE, "Always 1; its labels tell the version and the node.", ("version", "node_id")
)
DEAD_LETTERS = Metric("outboxd_dead_letter", COUNTER, "Events that became dead letters.", ("lane",))
UNMATCHED = Metric("outboxd_unmatched_events", COUNTER, "Events that no publisher of the lane wants.", ("lane",))
CLAIMED = Metric("outboxd_claimed_events", COUNTER, "Events claimed.", ("lane",))
LEASE_LOST = Metric("outboxd_lease_lost", COUNTER, "Outcomes that came after the claim was lost.", ("lane",))
EVENT_GONE = Metric("outboxd_event_gone", COUNTER, "Events whose row was deleted while they were held.", ("lane",))
STALE_DISCARDED = Metric(
    "outboxd_stale_discarded_events", COUNTER, "Events deleted unpublished, since they were stale at their turn.",
    ("lane",),
)  # fmt: skip
CLEANUP_DELETED = Metric(
    "outboxd_cleanup_deleted_events", COUNTER,
    "Rows that cleanup deleted: active ones were unpublished, terminal ones delivered or failed.", ("lane", "state"),
)  # fmt: skip
RELEASED = Metric("outboxd_released_events", COUNTER, "Claimed events given back unpublished.", ("lane", "reason"))
DOORBELL_RINGS = Metric(
    "outboxd_doorbell_rings", COUNTER, "Times that the doorbell woke a worker; a burst of rings is one.", ("lane",)
)
WORKER_RESTARTS = Metric(
    "outboxd_worker_restarts", COUNTER, "Worker processes replaced, by what became of the last one.", ("lane", "reason")
)
BRIDGE_MESSAGES = Metric(
    "outboxd_bridge_messages", COUNTER, "Messages that the bridge has dealt with, by what became of them.", ("result",)
)
JOB_RUNS = Metric("outboxd_job_runs", COUNTER, "Ticks and runs of jobs, by what became of them.", ("job", "result"))
JOB_DURATION = Metric(
    "outboxd_job_duration_seconds", HISTOGRAM, "Runs of jobs that ended by themselves.", ("job",), RUN_S
)
JOB_LAST_SUCCESS = Metric(
    "outboxd_job_last_success_timestamp_seconds", GAUGE, "When this node last ran the job with success.", ("job",)
)

METRICS = (
    PUBLISH_SUCCESS, PUBLISH_FAILURE, PUBLISH_LATENCY, DELIVERY_LATENCY, PENDING_EVENTS, COUNT_CAPPED, IN_FLIGHT_EVENTS,
    OLDEST_PENDING_AGE, FAILED_EVENTS, BLOCKED_ROOMS, DEAD_LETTERS, UNMATCHED, CLAIMED, CLAIM_LATENCY, SWEEP_SECONDS,
    LEASE_LOST, EVENT_GONE, RELEASED, STALE_DISCARDED, CLEANUP_DELETED, DOORBELL_RINGS, BREAKER_OPEN, WORKERS,
    WORKER_RESTARTS, BRIDGE_MESSAGES, JOB_RUNS, JOB_DURATION, JOB_LAST_SUCCESS, DATABASE_UP, INFO,
)  # fmt: skip
"""All of them. Tests see that each is documented."""

KEPT_IN_FILES = frozenset(
    {
        PUBLISH_SUCCESS, PUBLISH_FAILURE, PUBLISH_LATENCY, DELIVERY_LATENCY, CLAIM_LATENCY, SWEEP_SECONDS,
        JOB_RUNS, JOB_DURATION, JOB_LAST_SUCCESS,
    }
)  # fmt: skip
"""What workers write, and the role that runs jobs; the rest is read from the scoreboard and the tables by the role that
answers."""
