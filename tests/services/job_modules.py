"""Modules with handlers, written for one test, and processes that load them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOAD = "import sys; from outboxd.jobs.registry import load_handlers; print(*load_handlers(sys.argv[1:]))"


def write_module(folder: Path, name: str, *lines: str) -> str:
    """A module that knows `handler` and `outboxd`; its name."""
    (folder / f"{name}.py").write_text("\n".join(("import outboxd.jobs", "from outboxd.jobs import handler", *lines)))
    return name


def registering(handler: str) -> str:
    """The lines that register a handler which does nothing."""
    return f'@handler("{handler}")\ndef does_nothing(context, params): return "done"\n'


def load_in_process(folder: Path, *modules: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, since handlers are registered once in a process: prints the names that are registered."""
    return subprocess.run(
        [sys.executable, "-c", LOAD, *modules],
        cwd=ROOT, env={"PYTHONPATH": f"{ROOT}:{folder}"}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
