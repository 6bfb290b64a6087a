"""Judges an installation of EDL. Pure."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from admin.findings import Finding, error, note, ok, warning
from kube import decode
from policy.cluster import placement
from policy.cluster.snapshot import Node, Pod
from policy.document import parser as document
from policy.errors import DocumentError
from policy.names import MANAGER, POLICY_CONFIGMAP, POLICY_KEY, SYSTEM_NAMESPACE
from policy.scheduling import Registration, SchedulerCheck
from runtime import certs

_SOON = timedelta(days=30)
_LEASE_S = 30.0
_STALE_S = 90.0
"""Bookmarks come every minute, so a watch that is silent for longer is broken."""
_TICK_S = 30.0
_SETTLED_S = 5.0
"""Delay between a server's readiness and the first requests that its Service forwards to it."""


def deployment(
    name: str, obj: Mapping[str, Any] | None, pods: Iterable[Mapping[str, Any]]
) -> Finding:
    """Judges a server's Deployment and its pods."""
    if obj is None:
        return error(name, "is not installed: apply deploy/base")
    replicas = int(obj.get("spec", {}).get("replicas", 1))
    ready = int(obj.get("status", {}).get("readyReplicas", 0))
    reasons = [*_failures(obj), *(reason for pod in pods for reason in _waiting(pod))]
    text = f"{ready} of {replicas} replicas are ready"
    if replicas == 0:
        return note(name, "is scaled to 0")
    if ready == 0:
        return error(name, "; ".join([text, *reasons]))
    return (
        warning(name, "; ".join([text, *reasons]))
        if ready < replicas or reasons
        else ok(name, text)
    )


def no_extender(config_map: Mapping[str, Any] | None) -> Finding:
    """Judges an installation without the extender, from the reconciler's ConfigMap about the scheduler."""
    check = SchedulerCheck.from_data((config_map or {}).get("data", {}))
    if check.registration is Registration.REGISTERED:
        text = f"is not installed, but {check.scheduler} has its entries and calls it: "
        return error("edl-extender", text + "install the extender, or remove the entries")
    return note("edl-extender", "is not installed (way (b) of docs/install.md)")


def _failures(obj: Mapping[str, Any]) -> list[str]:
    """Returns the reasons why a Deployment creates no pods, such as quotas, Pod Security or admission."""
    conditions = obj.get("status", {}).get("conditions", ())
    return [
        str(condition.get("message", ""))
        for condition in conditions
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True"
    ]


def _waiting(pod: Mapping[str, Any]) -> list[str]:
    """Returns the reasons why containers of a pod do not run, such as a missing image."""
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return [
        f"{pod['metadata']['name']}: {state['reason']} {state.get('message', '')}".strip()
        for status in statuses
        if not pod["metadata"].get("deletionTimestamp")
        and (state := status.get("state", {}).get("waiting"))
        and state.get("reason")
    ]


def apart(name: str, pods: Sequence[Pod], nodes: Iterable[Node]) -> list[Finding]:
    """Judges the placement of a server's replicas: the loss of one node must not end all replicas.

    Args:
        name: Name of the server's Deployment.
        pods: Its running pods.
        nodes: The nodes of the cluster.
    """
    places = {pod.node for pod in pods}
    if len(pods) < 2 or len(places) > 1:  # noqa: PLR2004 - a single replica cannot be spread
        return []
    others = [
        node.name
        for node in nodes
        if node.name not in places and placement.admits(node, pods[0].constraints) is None
    ]
    if not others:
        return []
    text = f"all {len(pods)} replicas run on node {pods[0].node} and fail with it; to spread them to {min(others)}: "
    text += f"kubectl -n {SYSTEM_NAMESPACE} rollout restart deployment {name}"
    return [warning(name, text)]


def unasked(
    extender: Mapping[str, Any], details: Mapping[str, Any], trainers: Iterable[Pod]
) -> list[Finding]:
    """Judges an extender to which kube-scheduler should have sent requests about trainers.

    Args:
        extender: The extender's pod.
        details: Its response to /readyz.
        trainers: The trainers of all jobs.
    """
    requests = details.get("last_requests")
    if not isinstance(requests, Mapping) or requests.get("filter") != "never":
        return []
    ready_s = max(
        (
            decode.seconds(condition.get("lastTransitionTime"))
            for condition in extender.get("status", {}).get("conditions", ())
            if condition.get("type") == "Ready" and condition.get("status") == "True"
        ),
        default=float("inf"),
    )
    count = sum(
        bool(pod.node) and pod.marked and pod.created_s > ready_s + _SETTLED_S for pod in trainers
    )
    if not count:
        return []
    text = f"kube-scheduler placed {count} trainer{'' if count == 1 else 's'} without calling this extender: the address or a certificate in "
    text += "kube-scheduler's configuration is wrong (see its log); `python -m admin scheduler-config` prints a "
    text += "correct one"
    return [error(str(extender["metadata"]["name"]), text)]


def lease(obj: Mapping[str, Any] | None, renewed_s: float, now_s: float) -> Finding:
    """Judges the Lease of the leading reconciler.

    Args:
        obj: The Lease, or None if it does not exist.
        renewed_s: Its `renewTime`, in seconds since the epoch.
        now_s: The API server's time.
    """
    holder = (obj or {}).get("spec", {}).get("holderIdentity")
    if not holder:
        return error("leader", "no reconciler leads: see the log of edl-reconciler")
    age_s = now_s - renewed_s
    if age_s > _LEASE_S:
        text = f"{holder} has not renewed its lease for {age_s:.0f} s: no reconciler leads"
        return error("leader", text)
    return ok("leader", str(holder))


def certificate(subject: str, pem: bytes, now: datetime, renew: str) -> Finding:
    """Judges a certificate.

    Args:
        subject: Owner of the certificate, for the report.
        pem: The certificate, or a bundle whose first certificate is judged.
        now: The current time, time zone aware.
        renew: How the certificate is renewed, for the report.
    """
    try:
        ends = certs.expires(pem)
    except ValueError as fault:
        return error(subject, f"is not a certificate in PEM ({fault}): {renew}")
    text = f"ends on {ends:%Y-%m-%d}"
    if ends <= now:
        return error(subject, f"ended on {ends:%Y-%m-%d}: {renew}")
    return warning(subject, f"{text}: {renew}") if ends - now < _SOON else ok(subject, text)


def bundles(kind: str, texts: Iterable[str], now: datetime) -> Finding:
    """Judges the caBundles of one of EDL's webhook configurations, which the webhook writes.

    Args:
        kind: Kind of the webhook configuration.
        texts: The caBundles in base64; "" for a missing one.
        now: The current time, time zone aware.
    """
    different = sorted(set(texts))
    waits = "if the webhook does not write it within a minute, see its log"
    if different == [""] or not different:
        return error(kind, f"has no caBundle, so the API server cannot call the webhook: {waits}")
    if len(different) > 1:
        return error(kind, f"its entries have different caBundles: {waits}")
    return certificate(f"caBundle of {kind}", pem(different[0]), now, waits)


def pem(text: object) -> bytes:
    """Decodes a base64 field; returns b"" if it is not base64."""
    try:
        return base64.b64decode(str(text), validate=True)
    except ValueError:
        return b""


def policy(config_map: Mapping[str, Any] | None) -> Finding:
    """Judges the policy ConfigMap."""
    if config_map is None:
        return note("policy", f"no ConfigMap {POLICY_CONFIGMAP}: the default is in force")
    text = config_map.get("data", {}).get(POLICY_KEY)
    if not isinstance(text, str):
        return error("policy", f"ConfigMap {POLICY_CONFIGMAP} has no key {POLICY_KEY}")
    try:
        document.parse(text)
    except DocumentError as fault:
        return error("policy", f"is invalid, and the previous one stays in force: {fault}")
    return ok("policy", f"valid, version {document.fingerprint(text)}")


def scheduling(config_map: Mapping[str, Any] | None) -> Finding:
    """Judges the ConfigMap in which the reconciler stores the result of its check of the scheduler."""
    check = SchedulerCheck.from_data((config_map or {}).get("data", {}))
    text = f"{check.scheduler} {check.registration}"
    if check.registration is Registration.REGISTERED:
        return ok("extender's entries", f"{check.scheduler} has the entries")
    if check.registration is Registration.MISSING:
        return note(
            "extender's entries", f"{check.scheduler} has no entries (way (b) of docs/install.md)"
        )
    return note("extender's entries", f"{text}: not known yet, or set by the policy")


def webhook_called(job: Mapping[str, Any]) -> Finding:
    """Judges from the dry run of an elastic Job whether the API server calls the webhook."""
    if job.get("spec", {}).get("managedBy") == MANAGER:
        return ok("admission", "the API server reaches the webhook")
    text = "the API server does not reach the webhook, so new Jobs are not elastic: if edl-webhook is ready, open port "
    text += (
        "8443 of its pods to the API server, and see apiserver_admission_webhook_fail_open_count"
    )
    return error("admission", text)


def page(pod: str, server: str, details: Mapping[str, Any]) -> list[Finding]:
    """Judges a server's response to /readyz.

    Args:
        pod: Name of the server's pod.
        server: extender, reconciler or webhook.
        details: The JSON of the response.
    """
    findings = [_policy_in_force(pod, details.get("policy") or {})]
    synced = details.get("synced")
    complete = all(synced.values()) if isinstance(synced, Mapping) else bool(synced)
    age_s = float(details.get("watch_age_seconds", 0.0))
    if not complete:
        findings.append(error(pod, "has not listed the cluster yet: see its log"))
    elif age_s > _STALE_S:
        text = (
            f"last heard from the API server {age_s:.0f} s ago: see WatchStale in docs/operating.md"
        )
        findings.append(error(pod, text))
    else:
        findings.append(ok(pod, f"knows the cluster as of {age_s:.0f} s ago"))
    judge = {"extender": _extender, "reconciler": _reconciler, "webhook": _webhook}[server]
    return findings + judge(pod, details)


def _policy_in_force(pod: str, in_force: Mapping[str, Any]) -> Finding:
    text = f"policy {in_force.get('version', 'unknown')} ({in_force.get('source', 'unknown')})"
    if in_force.get("error"):
        return error(pod, f"{text} stays in force: {in_force['error']}")
    return ok(pod, f"{text} is in force")


def _extender(pod: str, details: Mapping[str, Any]) -> list[Finding]:
    requests = details.get("last_requests") or {}
    text = ", ".join(f"{verb} {when}" for verb, when in requests.items())
    return [ok(pod, f"kube-scheduler's last requests: {text or 'unknown'}")]


def _reconciler(pod: str, details: Mapping[str, Any]) -> list[Finding]:
    ticks = details.get("ticks") or {}
    age_s, failing_s = (float(ticks.get(f"{name}_seconds", 0.0)) for name in ("age", "failing"))
    role = "leads" if details.get("leader") else "stands by"
    text = f"{role}; last tick without an error {age_s:.0f} s ago"
    if failing_s or age_s > _TICK_S:
        return [error(pod, f"{text}: see ReconcilerDown in docs/operating.md")]
    return [ok(pod, text)]


def _webhook(pod: str, details: Mapping[str, Any]) -> list[Finding]:
    served = details.get("certificate") or {}
    if served.get("error"):
        return [error(pod, f"cannot rotate its certificates: {served['error']}")]
    return [ok(pod, f"its certificate ends {served.get('expires') or 'at an unknown time'}")]


def same_policy(versions: Mapping[str, str]) -> Finding:
    """Judges whether all servers use the same policy version, given by pod name."""
    if len(set(versions.values())) > 1:
        text = ", ".join(f"{pod} {version}" for pod, version in sorted(versions.items()))
        return warning("policies", f"servers use different versions: {text}")
    return ok("policies", f"all {len(versions)} servers use the same version")
