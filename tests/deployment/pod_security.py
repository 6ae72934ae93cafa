"""The Pod Security Standard "restricted" (https://kubernetes.io/docs/concepts/security/pod-security-standards/), as far
as it concerns Linux: what a namespace that enforces it would refuse.
"""

from collections.abc import Iterator

from tests.deployment.manifests import Document

VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
    }
)  # fmt: skip
SELINUX = frozenset({None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})


def violations(pod: Document) -> list[str]:
    """What is against the standard in a pod's spec, a line each."""
    found = [f"{name} is true" for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name)]
    context = pod.get("securityContext", {})
    found += [f"sysctl {one['name']}" for one in context.get("sysctls", []) if one["name"] not in SYSCTLS]
    found += [f"volume {one['name']}" for one in pod.get("volumes", []) if not one.keys() - {"name"} <= VOLUMES]
    found += [f"pod: {text}" for text in _of_any_context(context)]
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in pod.get(kind, []):
            found += [f"{container['name']}: {text}" for text in _of_container(container, context)]
    return found


def _of_any_context(context: Document) -> Iterator[str]:
    if context.get("runAsUser") == 0:
        yield "runAsUser is root"
    if context.get("seccompProfile", {}).get("type", "RuntimeDefault") not in ("RuntimeDefault", "Localhost"):
        yield "seccompProfile"
    if context.get("appArmorProfile", {}).get("type", "RuntimeDefault") not in ("RuntimeDefault", "Localhost"):
        yield "appArmorProfile"
    options = context.get("seLinuxOptions", {})
    if options.get("type") not in SELINUX or options.get("user") or options.get("role"):
        yield "seLinuxOptions"
    if context.get("windowsOptions", {}).get("hostProcess"):
        yield "windowsOptions.hostProcess"


def _of_container(container: Document, pod: Document) -> Iterator[str]:
    context = container.get("securityContext", {})
    yield from _of_any_context(context)
    if context.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield "runAsNonRoot is not true"
    if "seccompProfile" not in context and "seccompProfile" not in pod:
        yield "no seccompProfile"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if context.get("privileged"):
        yield "privileged"
    if context.get("procMount", "Default") != "Default":
        yield "procMount"
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield "capabilities: ALL is not dropped"
    if not set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"}:
        yield "capabilities are added"
    yield from (f"hostPort {port['hostPort']}" for port in container.get("ports", []) if port.get("hostPort"))
    for handler in (container.get(name, {}) for name in ("livenessProbe", "readinessProbe", "startupProbe")):
        if handler.get("httpGet", {}).get("host") or handler.get("tcpSocket", {}).get("host"):
            yield "a probe names a host"
