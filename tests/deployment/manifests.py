"""The files under etc/ that others read: Kubernetes, Prometheus, Grafana, Docker; and the tools that check them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.services.find import program, require

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "etc" / "kubernetes"
PROMETHEUS = ROOT / "etc" / "prometheus"
DOCKER = ROOT / "etc" / "docker"
DASHBOARD = ROOT / "etc" / "grafana" / "outboxd.json"

Document = dict[str, Any]


def read(path: Path) -> Document:
    """The one document of a YAML file."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(document, dict), path
    return document


def tool(name: str) -> str:
    """The path of a program that comes with the tests' Python packages, or with the system."""
    found = program(name, str(Path(sys.executable).parent / name))
    return require(name, found, f"there is no {name}: tests/services/install.sh test installs it")


def run(*command: str) -> str:
    """What a program prints; it must end well."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def manifests() -> dict[str, Document]:
    """Kubernetes' manifests by their file's name."""
    return {path.name: read(path) for path in sorted(KUBERNETES.glob("*.yaml"))}


def pods() -> dict[str, Document]:
    """The pods that manifests make, by the file's name: their spec."""
    found = {name: one["spec"] for name, one in manifests().items() if one["kind"] in ("Deployment", "Job")}
    return {name: spec["template"]["spec"] for name, spec in found.items()}
