"""What a process costs: CPU seconds and memory, from /proc; and the server's statements."""

import os
import re
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from tests.services.mariadb import connect

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int, with_children: bool = False) -> float:
    """User and system time of a process so far; with_children: of those too that it has reaped."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(int(field) for field in fields[11 : 15 if with_children else 13]) / TICKS_PER_S


def workers_of(pid: int) -> list[int]:
    """Pids of a supervisor's living children that relay."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    names = {int(child): Path(f"/proc/{child}/comm").read_text(encoding="ascii").strip() for child in children}
    return [child for child, name in names.items() if name not in ("admin", "jobs", "bridge")]


def proportional_mib(pids: Iterable[int]) -> list[float]:
    """Proportional set size of each that is still there: the daemon's first look at the database is a child, too."""
    sizes = []
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            continue
        found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
        assert found, f"no Pss in smaps_rollup of {pid}"
        sizes.append(int(found[1]) / 1024)
    return sizes


def statements(url: str) -> int:
    """How many the server has been sent so far, this one included."""
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
        return int(cursor.fetchone()[1])
