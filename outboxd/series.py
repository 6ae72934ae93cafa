"""How a worker's numbers get to the role that answers scrapes: one file for its counters, one for its histograms,
one for gauges where there are any.

The format is that of prometheus_client's multiprocess mode, which reads and merges the files; a slot names them, so
that a restart goes on counting and leaves no file behind. They are not written by prometheus_client: it maps its
files, and the kernel ends a process that writes into a mapped page for which the disk has no room (SIGBUS). Writing a
file as a whole fails with an error instead, and costs one system call for all series.
"""

import contextlib
import json
import os
import struct
from collections.abc import Iterator, Sequence

from outboxd.errors import MetricsError
from outboxd.metrics import COUNTER, HISTOGRAM, Metric
from outboxd.tally import Buckets

GREATEST = "gauge_max"
"""As prometheus_client calls a file of gauges whose greatest value counts."""
FILE_BYTES = 128 * 1024
"""Reserved on the disk for each file when it is made: what a worker's series need, many times over."""
MOST_BYTES = 1024 * 1024
"""A file never grows beyond; what would be counted in further series is not."""

_HEADER = struct.Struct("i4x")
_LENGTH = struct.Struct("i")
_VALUE = struct.Struct("dd")  # the value, and a time that counters do not use
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def counter_key(metric: Metric, *values: str) -> str:
    """The name of a counter's series in its file."""
    return _key(metric, f"{metric.name}_total", dict(zip(metric.labels, values, strict=True)))


def gauge_key(metric: Metric, *values: str) -> str:
    """The name of a gauge's series in its file."""
    return _key(metric, metric.name, dict(zip(metric.labels, values, strict=True)))


def histogram_keys(metric: Metric, *values: str) -> tuple[list[str], str]:
    """The names of a histogram's series: of each bucket, and of the sum."""
    labels = dict(zip(metric.labels, values, strict=True))
    bounds = (*map(str, metric.bounds), "+Inf")
    buckets = [_key(metric, f"{metric.name}_bucket", labels | {"le": bound}) for bound in bounds]
    return buckets, _key(metric, f"{metric.name}_sum", labels)


def _key(metric: Metric, sample: str, labels: dict[str, str]) -> str:
    return json.dumps([metric.name, sample, labels, metric.help], sort_keys=True)


class SeriesFile:
    """The series of one kind of one slot. Raises MetricsError for what the disk refuses."""

    def __init__(self, directory: str, kind: str, slot: int) -> None:
        self._path = os.path.join(directory, f"{kind}_{slot}.db")
        self._image = bytearray(_HEADER.pack(_HEADER.size))
        self._places: dict[str, int] = {}
        self._descriptor = -1
        self._open()
        self._load(os.pread(self._descriptor, MOST_BYTES, 0))

    def _open(self) -> None:
        try:
            descriptor = os.open(self._path, _FLAGS, 0o600)
        except OSError as error:
            raise MetricsError(f"{self._path}: {error.strerror}") from error
        self.close()
        self._descriptor = descriptor
        try:
            os.posix_fallocate(descriptor, 0, FILE_BYTES)
        except OSError as error:
            raise MetricsError(f"{self._path}: {error.strerror}") from error

    def _load(self, content: bytes) -> None:
        """Go on from what the slot's last process has counted; from nothing where that cannot be read."""
        try:
            found = dict(_entries(content))
        except (ValueError, struct.error):
            return
        for key, value in found.items():
            self._places[key] = self._append(key, value)

    def add(self, key: str, amount: float) -> None:
        """Raise a series; it is there from the first time on."""
        place = self._place(key)
        if amount and place is not None:
            _VALUE.pack_into(self._image, place, _VALUE.unpack_from(self._image, place)[0] + amount, 0.0)

    def set(self, key: str, value: float) -> None:
        """Give a series its value."""
        place = self._place(key)
        if place is not None:
            _VALUE.pack_into(self._image, place, value, 0.0)

    def _place(self, key: str) -> int | None:
        """Where its value stands; None: there is no room for it."""
        if key not in self._places:
            if len(self._image) + len(key) + 64 > MOST_BYTES:
                return None
            self._places[key] = self._append(key, 0.0)
        return self._places[key]

    def _append(self, key: str, value: float) -> int:
        encoded = key.encode("ascii")  # as json.dumps makes it
        padding = b" " * (8 - (len(encoded) + _LENGTH.size) % 8)
        self._image += _LENGTH.pack(len(encoded)) + encoded + padding + _VALUE.pack(value, 0.0)
        _HEADER.pack_into(self._image, 0, len(self._image))
        return len(self._image) - _VALUE.size

    def write(self) -> None:
        """Put it all where scrapes see it; anew, if somebody has removed the file."""
        try:
            if os.fstat(self._descriptor).st_nlink == 0:
                self._open()
            os.pwrite(self._descriptor, self._image, 0)
        except OSError as error:
            raise MetricsError(f"{self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Free the descriptor; the file stays."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1


def _entries(content: bytes) -> Iterator[tuple[str, float]]:
    """Keys and values. Raises ValueError or struct.error where the content is no such file's."""
    used = _HEADER.unpack_from(content)[0] or _HEADER.size
    if not _HEADER.size <= used <= len(content):
        raise ValueError(f"{used} bytes in use of {len(content)}")
    at = _HEADER.size
    while at < used:
        length = _LENGTH.unpack_from(content, at)[0]
        start = at + _LENGTH.size
        at = start + length + (8 - (length + _LENGTH.size) % 8)
        if length <= 0 or at + _VALUE.size > used:
            raise ValueError(f"an entry of {length} bytes")
        name, sample, labels, _ = json.loads(content[start : start + length])
        if not (isinstance(name, str) and isinstance(sample, str) and isinstance(labels, dict)):
            raise ValueError("a key that names no series")
        yield content[start : start + length].decode("ascii"), _VALUE.unpack_from(content, at)[0]
        at += _VALUE.size


class Series:
    """All files of one slot."""

    def __init__(self, directory: str, slot: int) -> None:
        self._directory, self._slot = directory, slot
        self._counters = SeriesFile(directory, COUNTER, slot)
        self._histograms = SeriesFile(directory, HISTOGRAM, slot)
        self._gauges: SeriesFile | None = None  # few roles have any

    def count(self, key: str, amount: float) -> None:
        """Raise a counter; key: of counter_key."""
        self._counters.add(key, amount)

    def observe(self, keys: tuple[Sequence[str], str], buckets: Buckets) -> None:
        """Add a histogram's values and empty the buckets; keys: of histogram_keys."""
        names, total = keys
        for name, count in zip(names, buckets.counts, strict=True):
            self._histograms.add(name, count)
        self._histograms.add(total, buckets.total)
        buckets.clear()

    def set(self, key: str, value: float) -> None:
        """Set a gauge, of which the greatest over all slots is shown; key: of gauge_key. Raises MetricsError."""
        if self._gauges is None:
            self._gauges = SeriesFile(self._directory, GREATEST, self._slot)
        self._gauges.set(key, value)

    def write(self) -> None:
        """Show it. Raises MetricsError."""
        self._counters.write()
        self._histograms.write()
        if self._gauges is not None:
            self._gauges.write()
