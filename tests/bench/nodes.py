"""Two nodes on one database against one node with as many workers as both: do they get in each other's way?"""

import statistics

from tests.bench import contestants, lane
from tests.bench.contestants import Run
from tests.services.mariadb import PrivateServer, execute

TABLE = "room_outbox"


def compare(server: PrivateServer, url: str, events: int, rounds: int, workers: int, batch: int) -> dict[str, float]:
    """Events per second of either, and the median of their ratios."""
    one = [lane.config(url, "nothing", workers=workers, batch=batch)]
    two = [lane.config(url, "nothing", workers=workers // 2, batch=batch, node=name) for name in ("left", "right")]
    lane.make(one[0])
    runs: dict[str, list[Run]] = {"one": [], "two": []}
    for number in range(rounds + 1):
        for name in sorted(runs, reverse=bool(number % 2)):
            execute(url, f"TRUNCATE {TABLE}")
            nodes = one if name == "one" else two
            run = contestants.drained(server, nodes, events, "e", TABLE)
            runs[name] += [run] if number else []  # the first round warms up
        if number:
            rates = ", ".join(f"{name} {found[-1].rate:,.0f}/s" for name, found in runs.items())
            print(f"nodes, round {number}: {rates}", flush=True)
    ratios = (both.rate / alone.rate for both, alone in zip(runs["two"], runs["one"], strict=True))
    return {
        "one_node_per_s": statistics.median(run.rate for run in runs["one"]),
        "two_nodes_per_s": statistics.median(run.rate for run in runs["two"]),
        "two_nodes": statistics.median(ratios),
    }
