"""One row of the job log while its run is this process's."""

import time
from dataclasses import dataclass, field

from outboxd.redact import clip, redact
from outboxd.schedule.records import CRON, SHOWN_CHARACTERS, Job, Run, RunStatus

NOTE_CHARACTERS = 95
"""What is added to a message; the column is so much wider than SHOWN_CHARACTERS."""


@dataclass(slots=True, eq=False)
class Line:
    """A run, or a tick that was skipped. tick_ms: where the tick is one node's alone. row_id: 0 until the row is
    written. is_counted: the metrics have it already; a skip that may be another node's to tell has to be written first.
    """

    job: Job
    fire_at_ms: int
    tick_ms: int | None = None
    triggered_by: str = CRON
    row_id: int = 0
    status: RunStatus = RunStatus.RUNNING
    began_s: float = field(default_factory=time.monotonic)
    duration_ms: int = 0
    message: str = ""
    exception: str = ""
    is_counted: bool = True

    def end(self, status: RunStatus, message: str = "", exception: str = "", note: str = "") -> None:
        """It is over."""
        self.status = status
        self.duration_ms = 0 if status is RunStatus.SKIPPED else round((time.monotonic() - self.began_s) * 1000)
        self.message, self.exception = shown(message), shown(exception)
        if note:
            self.message = f"{self.message} [{clip(redact(note), NOTE_CHARACTERS - 3)}]".lstrip()

    def run(self, node_id: str) -> Run:
        """As the table has it."""
        return Run(
            id=self.row_id,
            job_id=self.job.id,
            name=self.job.name,
            fire_at_ms=self.fire_at_ms,
            status=self.status,
            tick_ms=self.tick_ms,
            triggered_by=self.triggered_by,
            node_id=node_id,
            duration_ms=self.duration_ms,
            message=self.message,
            exception=self.exception,
        )


def shown(text: str) -> str:
    """What the log keeps of a text."""
    return clip(redact(text), SHOWN_CHARACTERS)
