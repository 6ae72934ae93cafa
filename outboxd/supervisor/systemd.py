"""What the service manager is told (sd_notify): one datagram for each fact, and nothing where nobody listens.

A socket that is gone costs the message, one that is full a moment; neither holds up the daemon.
"""

import math
import os
import socket
import time
from collections.abc import Callable, MutableMapping
from enum import Enum

STATUS_EVERY_S = 1.0
RETRY_S = 0.1
"""What the manager had no room for is said again then."""


class Phase(Enum):
    """Of the daemon as a whole."""

    STARTING = "starting"
    READY = "ready"
    RELOADING = "reloading"
    STOPPING = "stopping"


class Notifier:
    """Made once, by the process that the manager watches. Call `turn` in every turn of its loop.

    Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment, so that no child speaks for us.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        address = environ.pop("NOTIFY_SOCKET", "")
        usec, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        is_watched = bool(address) and usec.isdecimal() and int(usec) > 0 and pid in ("", str(os.getpid()))
        self._ping_every_s = int(usec) / 2e6 if is_watched else math.inf
        self._ping_at_s = 0.0 if is_watched else math.inf
        self._status_at_s = 0.0 if address else math.inf
        self._status = ""
        self._turned_s = 0.0
        self._is_owing = False  # the manager had no room for something
        self._phase = Phase.STARTING

    def tell(self, phase: Phase) -> None:
        """Say it, if it is news. A reload before the first READY is none of the manager's business."""
        if phase is self._phase or (phase is Phase.RELOADING and self._phase is Phase.STARTING):
            return
        moment = f"\nMONOTONIC_USEC={time.monotonic_ns() // 1000}" if phase is Phase.RELOADING else ""
        if self._send(f"{phase.name}=1{moment}"):
            self._phase = phase
            self._status_at_s = 0.0 if self._address else math.inf

    def turn(self, now_s: float, phase: Phase, status: Callable[[], str]) -> None:
        """Say what is news: the phase; the status, once a second at most; and that the loop turns, for the watchdog."""
        self._turned_s, self._is_owing = now_s, False
        self.tell(phase)
        if now_s >= self._status_at_s:
            self._status_at_s = now_s + STATUS_EVERY_S
            if (text := status()) != self._status and self._send(f"STATUS={text}"):
                self._status = text
        if now_s >= self._ping_at_s and self._send("WATCHDOG=1"):
            self._ping_at_s = now_s + self._ping_every_s

    def wake_at(self) -> float:
        """When to call `turn` again at the latest."""
        return self._turned_s + RETRY_S if self._is_owing else min(self._status_at_s, self._ping_at_s)

    def _send(self, text: str) -> bool:
        """False if it is to be said again."""
        if self._address:
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
                    link.sendto(text.encode(), socket.MSG_DONTWAIT, self._address)
            except BlockingIOError:
                self._is_owing = True
            except OSError:  # nobody is there
                return True
        return not self._is_owing
