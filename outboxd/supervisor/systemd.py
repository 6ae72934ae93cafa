"""What the service manager is told (sd_notify): one datagram for each fact, and nothing where nobody listens.

A socket that is gone, full or never was costs the message, never the daemon.
"""

import contextlib
import math
import os
import socket
import time
from collections.abc import Callable, MutableMapping
from enum import Enum

STATUS_EVERY_S = 1.0


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
        self._phase = Phase.STARTING

    def tell(self, phase: Phase) -> None:
        """Say it, if it is news. A reload before the first READY is none of the manager's business."""
        if phase is self._phase or (phase is Phase.RELOADING and self._phase is Phase.STARTING):
            return
        self._phase = phase
        if self._address:
            self._status_at_s = 0.0
        if phase is Phase.RELOADING:
            self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        elif phase is not Phase.STARTING:
            self._send(f"{phase.name}=1")

    def turn(self, now_s: float, phase: Phase, status: Callable[[], str]) -> None:
        """Say what is news: the phase; the status, once a second at most; and that the loop turns, for the watchdog."""
        self.tell(phase)
        if now_s >= self._status_at_s:
            self._status_at_s = now_s + STATUS_EVERY_S
            if (text := status()) != self._status:
                self._status = text
                self._send(f"STATUS={text}")
        if now_s >= self._ping_at_s:
            self._ping_at_s = now_s + self._ping_every_s
            self._send("WATCHDOG=1")

    def wake_at(self) -> float:
        """When to call `turn` again at the latest."""
        return min(self._status_at_s, self._ping_at_s)

    def _send(self, text: str) -> None:
        if self._address:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
                link.sendto(text.encode(), socket.MSG_DONTWAIT, self._address)
