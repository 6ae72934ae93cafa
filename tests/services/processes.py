"""What /proc tells of processes: who descends from whom, and what they hold."""

import os
from pathlib import Path


def state_of(pid: int) -> str:
    """R, S, T, Z and so on, as ps shows it; empty when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat.rpartition(")")[2].split()[0]


def is_stopped(pid: int) -> bool:
    """Have all of its threads heeded a SIGSTOP? They do so one by one."""
    tasks = [path.read_text(encoding="ascii", errors="replace") for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(text.rpartition(")")[2].split()[0] == "T" for text in tasks)


def children_of(pid: int) -> list[int]:
    """Its processes, zombies too; none when it is gone."""
    try:
        lists = [path.read_text(encoding="ascii") for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for text in lists for child in text.split()]


def descendants_of(pid: int) -> set[int]:
    """Its children, theirs, and so on."""
    found = set(children_of(pid))
    return found.union(*map(descendants_of, found))


def session_of(pid: int) -> set[int]:
    """Who runs in the session that the process leads or led: all that a program of the tests has started."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == pid and fields[0] != "Z":
            found.add(int(path.parent.name))
    return found


def descriptors_of(pid: int) -> list[str]:
    """The numbers of its open files, in order."""
    return sorted(os.listdir(f"/proc/{pid}/fd"))


def shared_maps_of(pid: int) -> int:
    """How many pieces of memory it shares with other processes."""
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    return sum(" rw-s " in line for line in maps.splitlines())


def resident_bytes(pid: int) -> int:
    """The memory that it has resident now."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def keeps(pid: int, signum: int) -> bool:
    """Is the signal not dropped: blocked until somebody asks for it, or handled?"""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigBlk:", "SigCgt:"))]
    return any(mask >> (signum - 1) & 1 for mask in masks)


def connections_to(port: int) -> int:
    """Established TCP connections of this machine's clients to a port of it."""
    texts = [Path(name).read_text(encoding="ascii") for name in ("/proc/net/tcp", "/proc/net/tcp6")]
    rows = [line.split() for text in texts for line in text.splitlines()[1:]]
    return sum(row[3] == "01" and int(row[2].rpartition(":")[2], 16) == port for row in rows)
