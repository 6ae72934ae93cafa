"""The end of the admin role: at once, whenever it comes. It holds nothing that would have to be given back."""

import os
import select
import threading

from outboxd.vitals import EXIT_OK


def end_when_told(doorbell: int) -> None:
    """End the process, with 0, when the doorbell rings. A thread hears it while the libraries are still being loaded,
    which takes longer than the supervisor waits on a machine that is busy.
    """

    def listen() -> None:
        poll = select.poll()
        poll.register(doorbell, select.POLLIN)
        poll.poll()
        os._exit(EXIT_OK)

    threading.Thread(target=listen, name="end", daemon=True).start()
