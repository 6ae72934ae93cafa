"""The one selector of a worker: whatever it waits for, it waits here."""

import select
from collections.abc import Set


class Waiting:
    """An epoll over descriptors that change from turn to turn; registering only what changed."""

    def __init__(self, doorbell: int) -> None:
        self._epoll = select.epoll()
        self._masks: dict[int, int] = {}
        self._doorbell = doorbell
        self._epoll.register(doorbell, select.EPOLLIN)

    def wait(self, read: Set[int], write: Set[int], timeout_s: float) -> bool:
        """Until one of them is ready, the doorbell rings or the time is over; did the doorbell ring?"""
        wanted = dict.fromkeys(read, select.EPOLLIN)
        for fd in write:
            wanted[fd] = wanted.get(fd, 0) | select.EPOLLOUT
        if wanted != self._masks:
            self._change(wanted)
        ready = self._epoll.poll(max(0.0, timeout_s))
        return any(fd == self._doorbell for fd, _ in ready)

    def _change(self, wanted: dict[int, int]) -> None:
        for fd in self._masks.keys() - wanted.keys():
            try:
                self._epoll.unregister(fd)
            except (OSError, ValueError):  # closed by its owner: the kernel has forgotten it already
                continue
        for fd, mask in wanted.items():
            try:
                self._epoll.register(fd, mask)
            except FileExistsError:
                self._epoll.modify(fd, mask)
        self._masks = wanted

    def close(self) -> None:
        """Free the selector; the descriptors stay their owners'."""
        self._epoll.close()
