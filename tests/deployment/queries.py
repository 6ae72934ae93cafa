"""Which metrics and labels a PromQL expression uses, as far as ours need it: no parser, and no strings with braces."""

import re

from outboxd.metrics import COUNTER, HISTOGRAM, METRICS

TARGET = frozenset({"job", "instance", "namespace", "pod"})
"""Labels that Prometheus gives to every sample of a target."""

RENAMED = {"job": "exported_job"}
"""What Prometheus makes of labels of ours that are its own, unless it honours labels."""

SAME_EVERYWHERE = (
    "outboxd_pending_events",
    "outboxd_oldest_pending_age_seconds",
    "outboxd_failed_events",
    "outboxd_count_capped",
)
"""Read from the tables: every node says the same of them."""

_NAME = re.compile(r"\boutboxd_[a-z0-9_]+(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"')
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")


def samples() -> dict[str, frozenset[str]]:
    """Every name of a sample on the page of metrics, with its labels."""
    found: dict[str, frozenset[str]] = {}
    for metric in METRICS:
        labels = frozenset(RENAMED.get(label, label) for label in metric.labels)
        if metric.kind == COUNTER:
            found[f"{metric.name}_total"] = labels
        elif metric.kind == HISTOGRAM:
            found |= {f"{metric.name}_{part}": labels for part in ("sum", "count")}
            found[f"{metric.name}_bucket"] = labels | {"le"}
        else:
            found[metric.name] = labels
    return found


def used(expression: str) -> set[str]:
    """The names of our metrics in it."""
    return {found[0].partition("{")[0] for found in _NAME.finditer(expression)}


def mistakes(expression: str) -> list[str]:
    """Names that no sample has, and labels that are not on the samples they are asked of."""
    known = samples()
    found = [f"no metric {name}" for name in sorted(used(expression)) if name not in known]
    for selector in _NAME.finditer(expression):
        name = selector[0].partition("{")[0]
        labels = set(_MATCHER.findall(selector[1] or ""))
        found += [f"{name} has no label {label}" for label in sorted(labels - known.get(name, labels) - TARGET)]
    grouped = {label.strip() for group in _GROUPING.findall(expression) for label in group.split(",") if label.strip()}
    for name in sorted(used(expression) & known.keys()):
        found += [f"{name} has no label {label}" for label in sorted(grouped - known[name] - TARGET)]
    return found


def added_up(expression: str) -> list[str]:
    """The metrics in it that every node tells alike, and of which it does not take the greatest."""
    plain = re.sub(r"\{[^}]*\}", "", expression)
    return [
        name
        for name in SAME_EVERYWHERE
        for found in re.finditer(rf"(max(?: by \([a-z, ]+\))? ?\()?{name}\b", plain)
        if not found[1]
    ]
