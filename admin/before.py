"""Judges whether a cluster is ready for an installation of EDL. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from admin.findings import Finding, error, note, ok, warning
from policy.names import MANAGER, SYSTEM_NAMESPACE
from policy.priority_classes import EDL_CLASSES

OLDEST = (1, 35)
"""First version of Kubernetes in which `spec.managedBy` of Jobs is stable."""
_SKEW_S = 5.0
_LEASE_S = 60.0
"""A kubelet renews its lease every 10 s; without a renewal for 40 s, its node is considered lost."""
_PART = ("app.kubernetes.io/part-of", "edl")
API_PORTS = frozenset((443, 6443, 8443, 16443))
"""API server ports that EDL's NetworkPolicies open for its servers (deploy/base/network-policies.yaml)."""
_NUMBER = re.compile(r"\d+")


class Right(NamedTuple):
    """A permission that the admin needs to install EDL."""

    verb: str
    group: str
    plural: str
    namespace: str = ""


_RBAC = "rbac.authorization.k8s.io"
_REGISTRATION = "admissionregistration.k8s.io"
RIGHTS = (
    Right("create", "", "namespaces"),
    Right("create", _RBAC, "clusterroles"),
    Right("create", _RBAC, "clusterrolebindings"),
    Right("escalate", _RBAC, "clusterroles"),
    Right("bind", _RBAC, "clusterroles"),
    Right("create", _REGISTRATION, "mutatingwebhookconfigurations"),
    Right("create", _REGISTRATION, "validatingwebhookconfigurations"),
    Right("create", _REGISTRATION, "validatingadmissionpolicies"),
    Right("create", _REGISTRATION, "validatingadmissionpolicybindings"),
    Right("create", "scheduling.k8s.io", "priorityclasses"),
    Right("create", "apiextensions.k8s.io", "customresourcedefinitions"),
    Right("create", "apps", "deployments", SYSTEM_NAMESPACE),
    Right("create", "", "secrets", SYSTEM_NAMESPACE),
)
"""Permissions for `kubectl apply -k deploy/base`, including roles with rights that the admin may lack."""


def version(info: Mapping[str, Any]) -> Finding:
    """Judges the version of Kubernetes, from the response to `GET /version`."""
    text = str(info.get("gitVersion", "unknown"))
    numbers = tuple(
        int(match[0]) if (match := _NUMBER.match(str(info.get(part, "")))) else 0
        for part in ("major", "minor")
    )
    if numbers < OLDEST:
        least = ".".join(map(str, OLDEST))
        return error("Kubernetes", f"{text}; EDL needs {least} or newer: upgrade the cluster first")
    return ok("Kubernetes", text)


def managed_by(stored: Mapping[str, Any]) -> Finding:
    """Judges the dry run of a Job that names EDL as its manager."""
    if stored.get("spec", {}).get("managedBy") == MANAGER:
        return ok("managedBy", "the API server stores spec.managedBy")
    text = "the API server drops spec.managedBy of Jobs: enable its feature gate JobManagedBy"
    return error("managedBy", text)


def rights(allowed: Mapping[Right, bool]) -> Finding:
    """Judges the admin's permissions, as reported by the API server."""
    missing = [
        f"{right.verb} {right.plural}{f' in {right.namespace}' if right.namespace else ''}"
        for right, is_allowed in allowed.items()
        if not is_allowed
    ]
    if missing:
        return error("rights", f"you may not {', '.join(missing)}: install EDL as a cluster admin")
    return ok("rights", "you may create all that EDL needs")


def clock(api_s: float, own_s: float) -> Finding:
    """Compares the API server's clock with this machine's; both in seconds since the epoch."""
    skew_s = api_s - own_s
    if abs(skew_s) > _SKEW_S:
        text = (
            f"the API server's clock is {abs(skew_s):.0f} s {'ahead' if skew_s > 0 else 'behind'}"
        )
        return warning("clock", f"{text} of this machine's clock: correct the wrong one (NTP)")
    return ok("clock", "the clocks of the API server and of this machine agree")


def kubelet_clocks(renewed_s: Mapping[str, float], api_s: float) -> Finding:
    """Judges the clocks of nodes by the last renewal of each node's Lease, whose time the node itself writes.

    Args:
        renewed_s: Node -> `renewTime` of its Lease, in seconds since the epoch.
        api_s: The API server's time.
    """
    ahead = sorted(node for node, at_s in renewed_s.items() if at_s > api_s + _SKEW_S)
    late = sorted(node for node, at_s in renewed_s.items() if at_s < api_s - _LEASE_S)
    if ahead:
        text = f"{_some(ahead)} are ahead: correct them (NTP), or certificates may be invalid there"
        return warning("clocks of nodes", text)
    if late:
        text = f"{_some(late)} are more than {_LEASE_S:.0f} s behind, or lost"
        return warning("clocks of nodes", text)
    return ok("clocks of nodes", f"{len(renewed_s)} agree with the API server")


def api_ports(slices: Iterable[Mapping[str, Any]]) -> Finding:
    """Judges, from EndpointSlices of the Service `kubernetes`, whether EDL can reach the API server.

    NetworkPolicies apply to the port of the endpoint, not to the port of the Service.
    """
    ports = {
        int(port["port"]) for part in slices for port in part.get("ports") or () if port.get("port")
    }
    closed = sorted(ports - API_PORTS)
    if not ports:
        opened = ", ".join(map(str, sorted(API_PORTS)))
        return note("API server", f"the port is unknown; EDL's NetworkPolicies open {opened}")
    if closed:
        text = f"listens on port {closed[0]}, which the NetworkPolicies edl-egress and edl-reconciler-egress do not open: "
        text += "if your network plugin enforces them, add the port in an overlay, or no server becomes ready"
        return warning("API server", text)
    return ok("API server", "EDL's NetworkPolicies open its port to EDL's servers")


def priority_classes(classes: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Judges the PriorityClasses: none may have EDL's names, or rank services below training."""
    findings = []
    for obj in classes:
        name, value = obj["metadata"]["name"], int(obj.get("value", 0))
        expected = EDL_CLASSES.get(name)
        policy = obj.get("preemptionPolicy", "PreemptLowerPriority")
        if expected is not None and (value, policy) != (expected.value, expected.preemption_policy):
            text = f"{name} exists with value {value}, {policy}; EDL needs {expected.value}, "
            text += f"{expected.preemption_policy}: delete it (values cannot be changed)"
            findings.append(error("priority classes", text))
        highest = max(of.value for of in EDL_CLASSES.values())
        if obj.get("globalDefault") and value <= highest:
            text = f"{name} is the default class and has value {value}: services without a class would "
            text += f"not outrank training; raise it above {highest}"
            findings.append(error("priority classes", text))
    return findings or [ok("priority classes", "no class conflicts with EDL's")]


def installations(
    deployments: Iterable[Mapping[str, Any]], registrations: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Returns the namespaces of EDL installations, found by Deployments and by Services of webhooks.

    Args:
        deployments: Deployments of all namespaces.
        registrations: Webhook configurations.
    """
    key, value = _PART
    found_in = {
        obj["metadata"]["namespace"]
        for obj in deployments
        if obj["metadata"].get("labels", {}).get(key) == value
    }
    for obj in registrations:
        if obj["metadata"].get("labels", {}).get(key) == value:
            for webhook in obj.get("webhooks", ()):
                service = webhook.get("clientConfig", {}).get("service") or {}
                found_in.add(service.get("namespace", SYSTEM_NAMESPACE))
    return sorted(found_in)


def second_installation(namespaces: Iterable[str]) -> Finding:
    """Judges whether EDL is installed in another namespace."""
    others = sorted(set(namespaces) - {SYSTEM_NAMESPACE})
    if others:
        text = f"also installed in {', '.join(others)}: both would plan the same Jobs; remove one"
        return error("another EDL", text)
    if SYSTEM_NAMESPACE in namespaces:
        return note("another EDL", f"installed in {SYSTEM_NAMESPACE}: this would be an upgrade")
    return ok("another EDL", "none")


def schedulers(pods: Iterable[Mapping[str, Any]]) -> Finding:
    """Judges, from the pods in kube-system, how EDL can work with kube-scheduler."""
    own = list(_schedulers(pods))
    if not own:
        text = "kube-scheduler is not visible, as on managed control planes: use way (b), no "
        return note("scheduler", text + "extender, or (c), a second scheduler (docs/install.md)")
    if in_host_network(own):
        text = "runs in the host network, where names of Services do not resolve: "
        return note("scheduler", text + "`python -m admin scheduler-config` writes the address")
    return ok("scheduler", "runs in the pod network: all three ways are possible")


def in_host_network(pods: Iterable[Mapping[str, Any]]) -> bool:
    """Returns whether a kube-scheduler among these pods cannot resolve names of Services."""
    return any(pod.get("spec", {}).get("hostNetwork") for pod in _schedulers(pods))


def _schedulers(pods: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for pod in pods:
        if pod["metadata"].get("labels", {}).get("component") == "kube-scheduler":
            yield pod


def webhooks(registrations: Iterable[Mapping[str, Any]]) -> Finding:
    """Judges, from other webhook configurations, whether the API server reaches webhooks in the cluster."""
    key, value = _PART
    others = [
        obj["metadata"]["name"]
        for obj in registrations
        if obj["metadata"].get("labels", {}).get(key) != value
        and any("service" in hook.get("clientConfig", {}) for hook in obj.get("webhooks", ()))
    ]
    if others:
        return ok(
            "webhooks", f"the API server calls others in the cluster ({_some(sorted(others))})"
        )
    text = (
        "no other webhook runs in the cluster; after the installation, `doctor` checks whether the "
    )
    return note("webhooks", text + "API server reaches EDL's, on port 8443 of its pods")


def admission(namespace: str, purpose: str, refusals: Mapping[str, str]) -> list[Finding]:
    """Judges dry runs of a pod, and of related objects, as EDL would create them.

    Args:
        namespace: Namespace of the objects.
        purpose: Purpose of the pod, for the report.
        refusals: Kind -> the API server's refusal, or "" if it admits the object.
    """
    subject = f"namespace {namespace}"
    texts = [
        f"{purpose if kind == 'Pod' else f'a {kind} of {purpose}'} would be refused: {words}"
        for kind, words in refusals.items()
        if words
    ]
    return [error(subject, text) for text in texts] or [ok(subject, f"admits {purpose}")]


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown  # noqa: PLR2004 - five names fit on a line
