"""A page of metrics as numbers."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.services.admin import Client

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(socket: Path) -> Samples:
    """(name, labels) → value of every sample that the daemon behind the socket shows."""
    answer = Client(socket).get("/metrics")
    assert answer.status == 200, answer.body
    families = text_string_to_metric_families(answer.body.decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def total(samples: Samples, name: str, **labels: str) -> float:
    """The sum of the samples of that name that have these labels."""
    wanted = frozenset(labels.items())
    return sum(value for (known, found), value in samples.items() if known == name and wanted <= found)
