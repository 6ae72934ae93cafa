"""The last resort of a drain (G5): a call that hangs, in the database's driver or a publisher's own code, ends with the
process."""

import os
import select
import threading
import time
from collections.abc import Callable

from outboxd.vitals import EXIT_OK

LAST_RESORT_S = 1.5
"""Beyond publish_timeout. What was in hand then comes again: leases and invisible times run out."""


def guard_drain(doorbell: int, publish_timeout_s: float) -> Callable[[], None]:
    """Keep the drain's limit wherever the loop is: in a call of the database's driver, which no signal interrupts and
    which may last longer, or in a publisher that hangs while it is set up or closed.

    A thread hears the doorbell too. What is returned tells it of a drain that no signal has asked for.
    """
    bell = os.eventfd(0, os.EFD_CLOEXEC)

    def end_in_time() -> None:
        poll = select.poll()
        poll.register(doorbell, select.POLLIN)
        poll.register(bell, select.POLLIN)
        poll.poll()
        time.sleep(publish_timeout_s + LAST_RESORT_S)
        os._exit(EXIT_OK)  # it was asked to

    threading.Thread(target=end_in_time, name="drain-guard", daemon=True).start()
    return lambda: os.eventfd_write(bell, 1)
