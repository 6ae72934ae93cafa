"""A worker's series in files that prometheus_client reads: they outlive restarts, and no disk harms the worker."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.multiprocess import MultiProcessCollector

from outboxd import metrics
from outboxd.errors import MetricsError
from outboxd.event import REASONS
from outboxd.metrics import COUNTER, HISTOGRAM
from outboxd.series import FILE_BYTES, MOST_BYTES, Series, SeriesFile, counter_key, histogram_keys
from outboxd.tally import Buckets
from tests.services.disks import small_disk

SUCCESS = counter_key(metrics.PUBLISH_SUCCESS, "room_outbox", "web")


def samples(folder: Path) -> dict[str, float]:
    """What prometheus_client makes of all files: sample's name and labels → value."""
    found: dict[str, float] = {}
    for family in MultiProcessCollector.merge(sorted(map(str, folder.glob("*.db")))):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def test_what_workers_count_is_summed_over_their_slots(tmp_path: Path) -> None:
    for slot in (0, 1, 12):
        series = Series(str(tmp_path), slot)
        series.count(SUCCESS, slot + 1)
        series.count(SUCCESS, 1)
        series.write()
    assert samples(tmp_path) == {"outboxd_publish_success_total{lane=room_outbox,publisher=web}": 19.0}


def test_a_histogram_is_read_back_cumulated(tmp_path: Path) -> None:
    """As Prometheus wants it; the file holds each bucket for itself."""
    series = Series(str(tmp_path), 0)
    keys = histogram_keys(metrics.CLAIM_LATENCY, "room_outbox")
    buckets = Buckets(metrics.CLAIM_LATENCY.bounds)
    for value in (0.0005, 0.001, 0.0011, 0.3, 99.0):
        buckets.observe(value)
    series.observe(keys, buckets)
    assert (sum(buckets.counts), buckets.total) == (0, 0.0), "handed over"
    series.write()
    found = samples(tmp_path)
    name = "outboxd_claim_latency_seconds"
    bounds = ("0.001", "0.0025", "0.25", "0.5", "10.0", "+Inf")
    assert [found[f"{name}_bucket{{lane=room_outbox,le={bound}}}"] for bound in bounds] == [2, 3, 3, 4, 4, 5]
    assert found[f"{name}_count{{lane=room_outbox}}"] == 5
    assert found[f"{name}_sum{{lane=room_outbox}}"] == pytest.approx(99.3026)


def test_a_restart_goes_on_counting_in_the_same_files(tmp_path: Path) -> None:
    """A slot's next process: no counter is reset, no file is left behind."""
    keys = histogram_keys(metrics.SWEEP_SECONDS, "room_outbox")
    for _ in range(50):
        series = Series(str(tmp_path), 3)
        buckets = Buckets(metrics.SWEEP_SECONDS.bounds)
        buckets.observe(0.2)
        series.count(SUCCESS, 2)
        series.observe(keys, buckets)
        series.write()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counter_3.db", "histogram_3.db"]
    found = samples(tmp_path)
    assert found["outboxd_publish_success_total{lane=room_outbox,publisher=web}"] == 100.0
    assert found["outboxd_sweep_seconds_count{lane=room_outbox}"] == 50.0


@pytest.mark.parametrize(
    "junk",
    [
        b"\xff" * 4096,
        b"",
        b"\x00" * 10,
        b"\x10\x00\x00\x00",
        (4000).to_bytes(4, "little") + b"\0" * 4 + (90_000).to_bytes(4, "little") + b"x" * 4000,
        (100).to_bytes(4, "little") + b"\0" * 4 + (20).to_bytes(4, "little") + b"{no json at all}    " + b"\0" * 200,
        (100).to_bytes(4, "little") + b"\0" * 4 + (0).to_bytes(4, "little") + b"\0" * 200,
    ],
)
def test_a_corrupt_file_is_begun_anew(tmp_path: Path, junk: bytes) -> None:
    """Somebody has written into the folder, or the machine crashed: the slot's counts start from zero, that is all."""
    (tmp_path / "counter_0.db").write_bytes(junk)
    file = SeriesFile(str(tmp_path), COUNTER, 0)
    file.add(SUCCESS, 5)
    file.write()
    assert samples(tmp_path) == {"outboxd_publish_success_total{lane=room_outbox,publisher=web}": 5.0}


def test_a_file_that_somebody_removed_or_cut_comes_back(tmp_path: Path) -> None:
    """Cleaners of temporary folders do such things; a mapped file that is cut ends the process."""
    file = SeriesFile(str(tmp_path), COUNTER, 0)
    harms: tuple[Callable[[Path], None], ...] = (
        os.unlink,
        lambda path: os.truncate(path, 0),
        lambda path: os.truncate(path, 9),
    )
    for number, harm in enumerate(harms):
        file.add(SUCCESS, 1)
        file.write()
        harm(tmp_path / "counter_0.db")
        file.write()
        assert list(samples(tmp_path).values()) == [number + 1.0]


def test_a_folder_that_is_gone_is_an_error_of_ours(tmp_path: Path) -> None:
    """And mends itself when it is back."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    file = SeriesFile(str(folder), HISTOGRAM, 0)
    (folder / "histogram_0.db").unlink()
    folder.rmdir()
    with pytest.raises(MetricsError, match="No such file"):
        file.write()
    folder.mkdir()
    file.write()
    with pytest.raises(MetricsError, match="No such file"):
        SeriesFile(str(tmp_path / "nowhere"), COUNTER, 0)


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    """A folder that others may write to must not make the daemon write where they like."""
    (tmp_path / "counter_0.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MetricsError):
        SeriesFile(str(tmp_path), COUNTER, 0)
    assert not (tmp_path / "elsewhere").exists()


def test_series_are_bounded(tmp_path: Path) -> None:
    """G9: whatever labels came in, a file does not grow without end, and what it has goes on counting."""
    file = SeriesFile(str(tmp_path), COUNTER, 0)
    file.add(SUCCESS, 1)
    for number in range(20_000):
        file.add(counter_key(metrics.PUBLISH_FAILURE, "room_outbox", "web", f"reason-{number}"), 1)
    file.add(SUCCESS, 1)
    file.write()
    assert (tmp_path / "counter_0.db").stat().st_size <= MOST_BYTES
    assert samples(tmp_path)["outboxd_publish_success_total{lane=room_outbox,publisher=web}"] == 2.0


def test_what_the_largest_lane_needs_has_room_from_the_start(tmp_path: Path) -> None:
    """Eight publishers and every reason: a file that need not grow cannot fail to."""
    series = Series(str(tmp_path), 0)
    for publisher in (f"a_rather_long_name_12345{n}" for n in range(8)):
        series.count(counter_key(metrics.PUBLISH_SUCCESS, "l" * 57, publisher), 1)
        for reason in REASONS:
            series.count(counter_key(metrics.PUBLISH_FAILURE, "l" * 57, publisher, reason), 1)
        keys = histogram_keys(metrics.PUBLISH_LATENCY, "l" * 57, publisher)
        series.observe(keys, Buckets(metrics.PUBLISH_LATENCY.bounds))
    for metric in (metrics.DELIVERY_LATENCY, metrics.CLAIM_LATENCY, metrics.SWEEP_SECONDS):
        series.observe(histogram_keys(metric, "l" * 57), Buckets(metric.bounds))
    series.write()
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {FILE_BYTES}


def test_a_full_disk_is_an_error_of_ours_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    """In a process of its own: with mapped files it would be ended by SIGBUS, and this test with it."""
    with small_disk(tmp_path / "small", 192) as disk:
        program = f"""
from outboxd.errors import MetricsError
from outboxd.series import Series
try:
    Series({str(disk)!r}, 0)
except MetricsError as error:
    assert "No space" in str(error), error
    print("refused")
"""
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (0, "refused\n"), ran.stderr
