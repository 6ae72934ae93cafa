"""Event ids: UUIDs of version 7 (RFC 9562, section 5.7), which sort by the time they were made.

48 bits of Unix milliseconds, then a counter of 42 bits that begins anywhere in its lower half with each millisecond
(section 6.2, method 1), then 32 random bits. Ids of one process ascend, over its threads too, also when its clock is
set back; ids of different processes ascend as their clocks do, to the millisecond. An index of them grows at its end.
"""

import os
import threading
import time

_COUNTER_BITS = 42
_COUNTER_END = 1 << _COUNTER_BITS
_LOWER_HALF = _COUNTER_END // 2 - 1


class _Sequence:
    """Of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ms = 0
        self._counter = 0

    def take(self) -> int:
        """The next id, as a number."""
        random = int.from_bytes(os.urandom(10), "big")
        now_ms = time.time_ns() // 1_000_000
        with self._lock:
            if now_ms > self._ms:
                self._ms, self._counter = now_ms, (random >> 32) & _LOWER_HALF
            else:
                self._counter += 1
                if self._counter == _COUNTER_END:
                    self._ms, self._counter = self._ms + 1, (random >> 32) & _LOWER_HALF
            ms, counter = self._ms, self._counter
        high, low = counter >> 30, counter & 0x3FFFFFFF
        return ms << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low << 32 | random & 0xFFFFFFFF


_sequence = _Sequence()


def _begin_anew() -> None:
    """A fork has its parent's counter, and perhaps a lock that nobody in it holds."""
    global _sequence
    _sequence = _Sequence()


os.register_at_fork(after_in_child=_begin_anew)


def new_event_id() -> str:
    """A new id, 36 characters of ASCII.

    >>> earlier, later = new_event_id(), new_event_id()
    >>> earlier < later
    True
    >>> len(later), later[14]
    (36, '7')
    """
    text = f"{_sequence.take():032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
