"""etc/kubernetes: what a cluster takes, and what agrees with the program and from file to file."""

import ast
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outboxd import __version__, redact, series
from outboxd.cli.main import COMMANDS
from outboxd.cli.run import DRAIN_MARGIN_S
from outboxd.config.load import parse
from outboxd.config.schema import Config, Http
from tests.deployment.manifests import KUBERNETES, ROOT, Document, manifests, pods, run, tool
from tests.deployment.pod_security import violations

EXTENSIONS = {"kustomization.yaml", "podmonitor.yaml", "scaledobject.yaml"}
"""Kinds that Kubernetes itself does not have."""
BY_HAND = {"init-db-job.yaml", "secret.example.yaml"}
SECRETS = "/run/secrets/outboxd"
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken for a secret here must not be masked in the texts of other tests."""
    monkeypatch.setattr(redact, "_known", frozenset())


def size(text: str) -> int:
    return int(text[:-2]) * UNITS[text[-2:]]


def container(name: str) -> Document:
    (only,) = pods()[name]["containers"]
    assert isinstance(only, dict)
    return only


def secret_items(name: str) -> dict[str, str]:
    """Of a pod: the names of the files of secrets, and which key of the secret is in each."""
    (volume,) = (volume["secret"] for volume in pods()[name]["volumes"] if "secret" in volume)
    return {item["path"]: item["key"] for item in volume["items"]}


def configuration(name: str, folder: Path) -> Config:
    """What a pod's container loads, with the environment and the files of secrets that it gets."""
    one = container(name)
    environ = {entry["name"]: entry.get("value") or "outboxd-5f7d9c9b8-x2x4z" for entry in one["env"]}
    (mount,) = (mount for mount in one["volumeMounts"] if mount["name"] == "secrets")
    assert mount["mountPath"] == SECRETS
    placeholders = manifests()["secret.example.yaml"]["stringData"]
    for path, key in secret_items(name).items():
        (folder / path).write_text(placeholders[key])
    text = manifests()["configmap.yaml"]["data"]["outbox.yaml"].replace(SECRETS, str(folder))
    return parse(text, environ, "configmap.yaml")


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_every_manifest_is_what_kubernetes_takes_with_no_unknown_field(version: str) -> None:
    """A field with a wrong name is ignored by a cluster without a word: a probe that is never asked, say."""
    files = [str(path) for path in sorted(KUBERNETES.glob("*.yaml")) if path.name not in EXTENSIONS]
    printed = run(tool("kubernetes-validate"), "--strict", "-k", version, *files).splitlines()
    assert [line.split()[2] for line in printed if line.startswith("INFO")] == ["passed"] * len(files)
    assert len(printed) == len(files) >= 7


@pytest.mark.parametrize("name", pods())
def test_a_pod_is_within_the_restricted_profile(name: str) -> None:
    assert violations(pods()[name]) == []
    assert container(name)["securityContext"]["readOnlyRootFilesystem"] is True
    assert pods()[name]["automountServiceAccountToken"] is False
    # Else a Service of this name sets OUTBOXD_PORT and the like, which are no settings of ours.
    assert pods()[name]["enableServiceLinks"] is False


def test_the_profile_is_enforced_where_the_pods_are() -> None:
    labels = manifests()["namespace.yaml"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert manifests()["kustomization.yaml"]["namespace"] == manifests()["namespace.yaml"]["metadata"]["name"]


OFFENCES: dict[str, Callable[[Document, Document], Any]] = {
    "root": lambda pod, one: pod["securityContext"].update(runAsUser=0),
    "may be root": lambda pod, one: pod["securityContext"].pop("runAsNonRoot"),
    "no seccomp": lambda pod, one: pod["securityContext"].pop("seccompProfile"),
    "unconfined": lambda pod, one: one["securityContext"].update(seccompProfile={"type": "Unconfined"}),
    "escalation": lambda pod, one: one["securityContext"].pop("allowPrivilegeEscalation"),
    "privileged": lambda pod, one: one["securityContext"].update(privileged=True),
    "capabilities": lambda pod, one: one["securityContext"].pop("capabilities"),
    "more of them": lambda pod, one: one["securityContext"]["capabilities"].update(add=["SYS_PTRACE"]),
    "host network": lambda pod, one: pod.update(hostNetwork=True),
    "host path": lambda pod, one: pod["volumes"].append({"name": "host", "hostPath": {"path": "/"}}),
    "host port": lambda pod, one: one["ports"][0].update(hostPort=9464),
    "sysctl": lambda pod, one: pod["securityContext"].update(sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
}


@pytest.mark.parametrize("offence", OFFENCES)
def test_the_rules_of_the_profile_find_what_is_against_it(offence: str) -> None:
    """The other test of the profile is worth what its rules are."""
    pod = copy.deepcopy(pods()["deployment.yaml"])
    OFFENCES[offence](pod, pod["containers"][0])
    assert len(violations(pod)) == 1


@pytest.mark.parametrize("name", pods())
def test_the_configuration_can_be_used_with_what_the_pod_gives(name: str, tmp_path: Path) -> None:
    config = configuration(name, tmp_path)
    user = {"deployment.yaml": "outboxd", "init-db-job.yaml": "outboxd_init"}[name]
    assert (config.database.user, config.database.password) == (user, "placeholder")
    assert config.node_id == "outboxd-5f7d9c9b8-x2x4z"
    assert isinstance(config.publishers["webhook"], Http)
    assert config.publishers["webhook"].authorization == "Bearer placeholder"
    assert config.warnings == ()


def test_the_node_is_named_by_the_pod() -> None:
    """G2: two nodes of one name could not be told apart in worker IDs."""
    for name in pods():
        (entry,) = (entry for entry in container(name)["env"] if entry["name"] == "OUTBOXD_NODE_ID")
        assert entry["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}


def test_the_grace_period_is_longer_than_a_drain(tmp_path: Path) -> None:
    """G5: what the cluster kills in mid-publish is published again."""
    config = configuration("deployment.yaml", tmp_path)
    longest_s = [lane.publish_timeout_s for lane in config.lanes.values()]
    drain_s = max(*longest_s, config.jobs.drain_timeout_s) + DRAIN_MARGIN_S
    assert pods()["deployment.yaml"]["terminationGracePeriodSeconds"] >= drain_s + 5


def test_the_memory_suffices_for_the_workers_and_what_they_hold(tmp_path: Path) -> None:
    """G9: what may be in flight is held twice at the most: as it was read, and as it is sent."""
    lanes = configuration("deployment.yaml", tmp_path).lanes.values()
    workers = sum(lane.concurrency for lane in lanes)
    held = sum(2 * lane.concurrency * lane.max_inflight_bytes for lane in lanes)
    volumes = [volume for volume in pods()["deployment.yaml"]["volumes"] if "emptyDir" in volume]
    folders = {volume["name"]: size(volume["emptyDir"]["sizeLimit"]) for volume in volumes}
    resources = container("deployment.yaml")["resources"]
    needed = (31 * workers + 26 + 45) * 2**20
    assert size(resources["requests"]["memory"]) >= needed
    assert size(resources["limits"]["memory"]) >= needed + held + sum(folders.values())
    assert folders["runtime"] >= workers * 2 * series.MOST_BYTES
    assert "cpu" not in resources["limits"]


def test_what_must_be_written_to_is_mounted() -> None:
    """The root file system is not writable."""
    mounts = {mount["mountPath"]: mount.get("readOnly") for mount in container("deployment.yaml")["volumeMounts"]}
    assert mounts == {"/etc/outboxd": True, SECRETS: True, "/run/outboxd": None, "/tmp": None}


def paths_served() -> set[str]:
    """Every text in the admin role's source that looks like a route."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "outboxd" / "admin").glob("*.py")]
    constants = [node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return {value for value in constants if isinstance(value, str) and value.startswith("/")}


def asked() -> dict[str, Document]:
    """What is asked of the pods over HTTP: by the three probes and by Prometheus."""
    one = container("deployment.yaml")
    (endpoint,) = manifests()["podmonitor.yaml"]["spec"]["podMetricsEndpoints"]
    return {name: one[name]["httpGet"] for name in one if name.endswith("Probe")} | {"podMonitor": endpoint}


def test_probes_and_scrapes_ask_for_what_is_served() -> None:
    paths = {name: get["path"] for name, get in asked().items()}
    assert paths == {
        "livenessProbe": "/healthz", "readinessProbe": "/readyz", "startupProbe": "/healthz", "podMonitor": "/metrics",
    }  # fmt: skip
    assert set(paths.values()) <= paths_served()


def test_probes_and_scrapes_ask_where_it_is_served(tmp_path: Path) -> None:
    """A probe of a port that nobody listens on restarts every pod for ever."""
    (service,) = manifests()["service.yaml"]["spec"]["ports"]
    assert {get["port"] for get in asked().values()} | {service["targetPort"]} == {"admin"}
    (port,) = container("deployment.yaml")["ports"]
    admin = configuration("deployment.yaml", tmp_path).admin
    assert (port["name"], port["containerPort"], service["port"]) == ("admin", admin.port, admin.port)
    assert admin.host == "0.0.0.0"  # beyond loopback, or nobody could ask
    name, namespace = manifests()["service.yaml"]["metadata"]["name"], manifests()["kustomization.yaml"]["namespace"]
    assert {name, f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local"} == set(admin.hosts)


def test_everything_selects_the_relays_pods_and_not_the_jobs() -> None:
    found = manifests()
    labels = found["deployment.yaml"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        found[name]["spec"]["selector"]["matchLabels"]
        for name in ("deployment.yaml", "poddisruptionbudget.yaml", "podmonitor.yaml")
    ]
    selectors += [
        spread["labelSelector"]["matchLabels"] for spread in pods()["deployment.yaml"]["topologySpreadConstraints"]
    ]
    selectors.append(found["service.yaml"]["spec"]["selector"])
    assert all(selector == labels for selector in selectors)
    assert len(selectors) == 6
    assert found["init-db-job.yaml"]["spec"]["template"]["metadata"]["labels"] != labels


def test_the_image_is_this_version_everywhere_and_runs_commands_there_are() -> None:
    """The tables are made by the version that uses them."""
    assert {container(name)["image"] for name in pods()} == {f"registry.example.com/outboxd:{__version__}"}
    commands = {name: container(name)["args"] for name in pods()}
    assert commands == {"deployment.yaml": ["run"], "init-db-job.yaml": ["init-db"]}
    assert all(arguments[0] in COMMANDS for arguments in commands.values())


def test_every_manifest_is_applied_or_said_to_be_for_some_only() -> None:
    text = (KUBERNETES / "kustomization.yaml").read_text(encoding="utf-8")
    applied = set(manifests()["kustomization.yaml"]["resources"])
    optional = {line.split()[2] for line in text.splitlines() if line.startswith("  # - ")}
    assert applied | optional | BY_HAND | {"kustomization.yaml"} == manifests().keys()
    assert optional == {"podmonitor.yaml", "scaledobject.yaml"}
    assert all(name in text for name in BY_HAND)


def test_the_example_of_the_secret_holds_what_is_asked_for_and_nothing_real() -> None:
    example = manifests()["secret.example.yaml"]["stringData"]
    assert {key for name in pods() for key in secret_items(name).values()} == example.keys()
    assert {value.removeprefix("Bearer ") for value in example.values()} == {"placeholder"}


def test_the_pod_monitor_has_the_shape_that_the_operator_reads() -> None:
    """By hand, since the schema is the operator's: PodMonitorSpec, PodMetricsEndpoint of monitoring.coreos.com/v1."""
    monitor = manifests()["podmonitor.yaml"]
    assert (monitor["apiVersion"], monitor["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor")
    assert monitor["spec"].keys() == {"selector", "sampleLimit", "podMetricsEndpoints"}
    assert type(monitor["spec"]["sampleLimit"]) is int
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint.keys() == {"port", "path", "interval", "scrapeTimeout"}
    assert int(endpoint["scrapeTimeout"].removesuffix("s")) < int(endpoint["interval"].removesuffix("s"))


def test_the_scaled_object_has_the_shape_that_keda_reads() -> None:
    """By hand, since the schema is KEDA's: keda.sh/v1alpha1, the scaler `prometheus`, whose metadata are all texts."""
    scaled = manifests()["scaledobject.yaml"]
    assert (scaled["apiVersion"], scaled["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    spec = scaled["spec"]
    assert spec.keys() == {
        "scaleTargetRef", "minReplicaCount", "maxReplicaCount", "pollingInterval", "triggers", "advanced",
    }  # fmt: skip
    assert spec["scaleTargetRef"] == {"name": manifests()["deployment.yaml"]["metadata"]["name"]}
    assert 1 <= spec["minReplicaCount"] == manifests()["deployment.yaml"]["spec"]["replicas"] < spec["maxReplicaCount"]
    (trigger,) = spec["triggers"]
    assert (trigger["type"], trigger["metricType"]) == ("prometheus", "Value")
    assert trigger["metadata"].keys() == {"serverAddress", "query", "threshold", "ignoreNullValues"}
    assert all(isinstance(value, str) for value in trigger["metadata"].values())
    assert spec["advanced"].keys() == {"horizontalPodAutoscalerConfig"}
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior.keys() == {"scaleUp", "scaleDown"}
    policies = [policy for way in behavior.values() for policy in way["policies"]]
    assert all(policy.keys() == {"type", "value", "periodSeconds"} for policy in policies)


def test_the_scaled_object_takes_the_greatest_of_what_every_node_says_alike() -> None:
    """The sum of one table's age over its nodes grows with the nodes: it would scale up for ever."""
    (trigger,) = manifests()["scaledobject.yaml"]["spec"]["triggers"]
    namespace = manifests()["kustomization.yaml"]["namespace"]
    assert trigger["metadata"]["query"] == f'max(outboxd_oldest_pending_age_seconds{{namespace="{namespace}"}})'
