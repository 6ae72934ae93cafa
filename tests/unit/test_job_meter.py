"""Numbers of jobs reach the files; their series are bounded, whatever jobs are called."""

import logging
from pathlib import Path

import pytest

from outboxd import log
from outboxd.jobs.meter import MOST_NAMES, OTHER, TRY_AGAIN_S, Meter
from outboxd.series import MOST_BYTES
from tests.unit.test_series import samples


def test_runs_are_counted_by_job_and_result(tmp_path: Path) -> None:
    meter = Meter(str(tmp_path), 0)
    meter.count("report", "missed", 3)
    meter.ended("report", "succeeded", 0.3)
    meter.ended("report", "failed", 20.0)
    meter.write(0.0)
    found = samples(tmp_path)
    assert {name: value for name, value in found.items() if "_total" in name} == {
        "outboxd_job_runs_total{job=report,result=missed}": 3,
        "outboxd_job_runs_total{job=report,result=succeeded}": 1,
        "outboxd_job_runs_total{job=report,result=failed}": 1,
    }
    assert found["outboxd_job_duration_seconds_count{job=report}"] == 2
    assert found["outboxd_job_duration_seconds_bucket{job=report,le=0.5}"] == 1
    assert found["outboxd_job_last_success_timestamp_seconds{job=report}"] > 1.7e9


def test_the_last_success_is_kept_over_a_restart_of_the_role(tmp_path: Path) -> None:
    """A failure does not change it, nor a process that has run nothing yet."""
    first = Meter(str(tmp_path), 3)
    first.ended("report", "succeeded", 0.1)
    first.write(0.0)
    before = samples(tmp_path)["outboxd_job_last_success_timestamp_seconds{job=report}"]
    second = Meter(str(tmp_path), 3)
    second.ended("report", "failed", 0.1)
    second.write(0.0)
    found = samples(tmp_path)
    assert found["outboxd_job_last_success_timestamp_seconds{job=report}"] == before
    assert found["outboxd_job_runs_total{job=report,result=succeeded}"] == 1


def test_jobs_beyond_the_bound_share_one_name(tmp_path: Path) -> None:
    """G9. The files hold that many, with the longest of names."""
    meter = Meter(str(tmp_path), 0)
    names = [f"{number:04}" + "\N{SNOWMAN}" * 60 for number in range(MOST_NAMES + 50)]
    for name in names:
        for result in ("succeeded", "failed"):
            meter.ended(name, result, 0.1)
    meter.write(0.0)
    found = samples(tmp_path)
    assert found[f"outboxd_job_runs_total{{job={OTHER},result=succeeded}}"] == 50
    last = names[MOST_NAMES - 1]
    assert found[f"outboxd_job_duration_seconds_count{{job={last}}}"] == 2
    assert found[f"outboxd_job_last_success_timestamp_seconds{{job={last}}}"] > 0
    assert max(path.stat().st_size for path in tmp_path.iterdir()) <= MOST_BYTES


def test_a_folder_that_cannot_be_written_costs_nothing_that_was_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line when it begins, one when it is over."""
    folder = tmp_path / "metrics"
    meter = Meter(str(folder), 0)
    with caplog.at_level(logging.INFO, logger="outboxd"):
        for step in range(20):
            meter.count("report", "skipped")
            meter.write(step * TRY_AGAIN_S)
        folder.mkdir()
        meter.write(20 * TRY_AGAIN_S)
    assert [record.msg for record in caplog.records] == [log.METRICS_UNAVAILABLE, log.METRICS_AVAILABLE]
    assert samples(folder)["outboxd_job_runs_total{job=report,result=skipped}"] == 20
