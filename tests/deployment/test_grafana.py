"""etc/grafana: a dashboard that can be imported and that shows what is exported."""

import itertools
import json
import re
from pathlib import Path

import pytest
import yaml

from outboxd.metrics import METRICS
from tests.deployment.manifests import DASHBOARD, Document, run, tool
from tests.deployment.queries import added_up, mistakes, samples, used

VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
BUILT_IN = {"__rate_interval": "5m", "__all": ""}
COLUMNS = 24


def dashboard() -> Document:
    loaded = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def panels() -> list[Document]:
    found = dashboard()["panels"]
    assert isinstance(found, list)
    return found


def queries() -> dict[str, str]:
    """The expressions by their panel's title and their letter."""
    return {
        f"{panel['title']}, {target['refId']}": target["expr"]
        for panel in panels()
        for target in panel.get("targets", [])
    }


def variables() -> dict[str, Document]:
    return {variable["name"]: variable for variable in dashboard()["templating"]["list"]}


def filled(expression: str) -> str:
    """Without variables, as Prometheus gets it."""
    return VARIABLE.sub(lambda found: BUILT_IN.get(found[1] or found[2], ".+"), expression)


@pytest.mark.parametrize("name", queries())
def test_a_query_asks_for_metrics_and_labels_that_exist(name: str) -> None:
    """A panel with a wrong name is empty, and looks like good news."""
    assert used(queries()[name])
    assert mistakes(filled(queries()[name])) == []
    assert added_up(queries()[name]) == []


def test_every_query_is_one_that_prometheus_takes(tmp_path: Path) -> None:
    """By promtool, which reads rules."""
    rules = [{"record": f"panel:{number}", "expr": filled(text)} for number, text in enumerate(queries().values())]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run(tool("promtool"), "check", "rules", "--lint=none", str(path))


def test_every_metric_is_shown() -> None:
    """What nobody sees need not be measured."""
    shown = {name for text in queries().values() for name in used(text)}
    names = {metric.name for metric in METRICS}
    assert {metric for metric in names if not any(name.startswith(metric) for name in shown)} == set()


def test_legends_name_labels_that_the_query_keeps() -> None:
    for panel in panels():
        for target in panel.get("targets", []):
            kept = {
                label.strip() for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in group.split(",")
            }
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept, panel["title"]


def test_every_panel_and_query_asks_the_data_source_that_is_chosen() -> None:
    """The id of the data source it was made with is nobody else's."""
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    asking = [panel for panel in panels() if panel["type"] != "row"]
    assert len(asking) > 20
    assert all(panel["datasource"] == chosen for panel in asking)
    assert all(target["datasource"] == chosen for panel in asking for target in panel["targets"])
    asked = [variable for variable in variables().values() if variable["type"] == "query"]
    assert all(variable["datasource"] == chosen for variable in asked)


def test_variables_are_those_that_are_used_and_have_metrics_that_exist() -> None:
    text = DASHBOARD.read_text(encoding="utf-8")
    names = {found[1] or found[2] for found in VARIABLE.finditer(text)} - BUILT_IN.keys()
    assert names == variables().keys() == {"datasource", "job", "node", "lane"}
    known = samples()
    for variable in variables().values():
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+)(?:\{[^}]*\})?, (\w+)\)", variable["query"]["query"])
            assert found, variable["name"]
            assert found[2] in known[found[1]] | {"job", "instance"}


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    """Grafana moves panels that overlap, each time differently."""
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    taken: dict[tuple[int, int], str] = {}
    for panel in panels():
        at = panel["gridPos"]
        assert 0 <= at["x"] < at["x"] + at["w"] <= COLUMNS, panel["title"]
        columns = range(at["x"], at["x"] + at["w"])
        for place in itertools.product(columns, range(at["y"], at["y"] + at["h"])):
            assert taken.setdefault(place, panel["title"]) == panel["title"]


def test_every_panel_says_what_it_shows() -> None:
    assert [panel["title"] for panel in panels() if panel["type"] != "row" and not panel["description"]] == []
    assert dashboard()["uid"] == "outboxd"
    assert "id" not in dashboard(), "an id belongs to one Grafana's database"
