"""etc/prometheus: rules and alerts that promtool takes, that do what they say, on metrics that exist."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from outboxd.admin.exposition import Exposition
from outboxd.admin.sampler import Sample
from outboxd.config.schema import Lane
from outboxd.event import REASONS
from outboxd.metrics import JOB_LAST_SUCCESS, JOB_RUNS, METRICS, PUBLISH_FAILURE, PUBLISH_LATENCY, PUBLISH_SUCCESS
from outboxd.series import Series, counter_key, gauge_key, histogram_keys
from outboxd.store.desk import Overview
from outboxd.supervisor.scoreboard import Scoreboard
from outboxd.tally import LATENCY_S, Buckets
from tests.deployment.manifests import PROMETHEUS, ROOT, Document, manifests, read, run, tool
from tests.deployment.queries import RENAMED, added_up, mistakes, samples, used

RULES, ALERTS, TESTS = (PROMETHEUS / f"outboxd.{name}.yml" for name in ("rules", "alerts", "tests"))
OLDER = {
    "room_outbox_pending_total", "room_outbox_publish_success_total", "room_outbox_publish_failure_total",
    "room_outbox_publish_latency_ms", "room_outbox_oldest_pending_age_ms",
}  # fmt: skip
LANE = Lane(name="room_outbox", direct=("webhook", "mirror"))
_NUMBERS = ("now_ms", "fresh", "scheduled", "retrying", "delivering", "failed", "blocked_rooms")


def rules(path: Path) -> list[Document]:
    return [rule for group in read(path)["groups"] for rule in group["rules"]]


def alerts() -> dict[str, Document]:
    return {rule["alert"]: rule for rule in rules(ALERTS)}


def test_promtool_takes_the_rules() -> None:
    printed = run(tool("promtool"), "check", "rules", "--lint=all", "--lint-fatal", str(RULES), str(ALERTS))
    assert re.findall(r"SUCCESS: (\d+) rules found", printed) == [str(len(OLDER)), str(len(alerts()))]


def test_rules_and_alerts_do_what_they_say() -> None:
    """On made-up series: when each fires, when it is silent, and what it tells."""
    assert "SUCCESS" in run(tool("promtool"), "test", "rules", str(TESTS))


def test_every_rule_is_tested_and_every_alert_both_ways() -> None:
    groups = read(TESTS)["tests"]
    recorded = {case["expr"] for group in groups for case in group.get("promql_expr_test", [])}
    assert recorded == {rule["record"] for rule in rules(RULES)} == OLDER
    cases = [case for group in groups for case in group.get("alert_rule_test", [])]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == alerts().keys()
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == alerts().keys()


@pytest.mark.parametrize("rule", [*rules(RULES), *rules(ALERTS)], ids=lambda rule: rule.get("record") or rule["alert"])
def test_a_rule_asks_for_metrics_and_labels_that_exist(rule: Document) -> None:
    """A wrong name is no error to Prometheus: the alert is silent for ever."""
    assert used(rule["expr"])
    assert mistakes(rule["expr"]) == []
    assert added_up(rule["expr"]) == []


def test_a_wrong_name_or_label_is_found() -> None:
    """The test of the rules is worth what this finds."""
    assert mistakes("sum by (lane) (rate(outboxd_claimed_total[5m]))") == ["no metric outboxd_claimed_total"]
    assert mistakes('outboxd_workers{status="running"}') == ["outboxd_workers has no label status"]
    assert mistakes("sum by (publisher) (outboxd_workers)") == ["outboxd_workers has no label publisher"]
    assert mistakes("outboxd_claimed_events") == ["no metric outboxd_claimed_events"]


def test_what_every_node_says_alike_is_not_added_up() -> None:
    """With three nodes a backlog would look three times as long."""
    assert added_up('sum by (lane) (outboxd_pending_events{lane="x"})') == ["outboxd_pending_events"]
    assert added_up('sum by (lane) (max by (lane, state) (outboxd_pending_events{lane="x"}))') == []
    assert added_up("max(outboxd_oldest_pending_age_seconds) + avg(outboxd_failed_events)") == ["outboxd_failed_events"]


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_how_bad_it_is_and_what_to_do(name: str) -> None:
    """Who is woken up by it reads this, and then the runbook."""
    alert = alerts()[name]
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert alert["annotations"].keys() == {"summary", "description", "runbook"}
    path, _, anchor = alert["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    assert anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    labels = set(re.findall(r"\$labels\.([a-z_]+)", str(alert["annotations"])))
    assert labels <= set(re.findall(r"[a-z_]+", alert["expr"])) | {"instance"}


def test_keda_asks_for_a_metric_that_exists() -> None:
    (trigger,) = manifests()["scaledobject.yaml"]["spec"]["triggers"]
    assert mistakes(trigger["metadata"]["query"]) == []


def page(folder: Path) -> str:
    """The page of metrics of a node that has relayed a little."""
    board = Scoreboard(4)
    for number in (1, 2):
        board.take(f"{LANE.name}-{number:02d}").begin(1.0)
    board.take("im_bridge-01").begin(1.0)
    series = Series(str(folder), 0)
    for publisher in LANE.direct:
        series.count(counter_key(PUBLISH_SUCCESS, LANE.name, publisher), 5)
        for reason in REASONS:
            series.count(counter_key(PUBLISH_FAILURE, LANE.name, publisher, reason), 1)
        _observe(series, PUBLISH_LATENCY, LANE.name, publisher)
    for metric in METRICS:
        if metric.bounds and metric is not PUBLISH_LATENCY:
            _observe(series, metric, LANE.name)
    series.count(counter_key(JOB_RUNS, "report", "failed"), 1)
    series.set(gauge_key(JOB_LAST_SUCCESS, "report"), 1.7e9)
    series.write()
    numbers: dict[str, Any] = dict.fromkeys(_NUMBERS, 7)
    overview = Overview(**numbers, capped=frozenset(), oldest_age_ms=1500, next_due_ms=None, paused=False, paused_by="")
    sample = Sample(True, 1.0, 1.0, {LANE.name: overview})
    body, _ = Exposition("node", [LANE], board, str(folder), lambda: sample).page("")
    return body.decode()


def _observe(series: Series, metric: Any, *labels: str) -> None:
    buckets = Buckets(metric.bounds or LATENCY_S)
    buckets.observe(0.004)
    series.observe(histogram_keys(metric, *labels), buckets)


def test_the_page_is_as_promtool_wants_it(tmp_path: Path) -> None:
    """Names, units and help texts by Prometheus' own conventions."""
    done = subprocess.run(
        [tool("promtool"), "check", "metrics"], input=page(tmp_path), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_page_has_every_sample_that_queries_may_ask_for(tmp_path: Path) -> None:
    """What the tests of the queries hold for true of names and labels is what is exported."""
    found: dict[str, set[str]] = {}
    lines = [line for line in page(tmp_path).splitlines() if not line.startswith("#")]
    for line in lines:
        name, _, labels = line.rpartition(" ")[0].partition("{")
        shown = re.findall(r'([a-z_]+)="', labels)
        found.setdefault(name, set()).update(RENAMED.get(label, label) for label in shown)
    assert found == samples()
    limit = manifests()["podmonitor.yaml"]["spec"]["sampleLimit"]
    assert len(lines) < limit / 20, "a lane's samples: more than the limit of a scrape has room for"
