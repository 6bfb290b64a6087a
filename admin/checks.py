"""Gathers the input for `before`, `after` and `removal`; an object that cannot be read becomes a finding."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache, partial
from typing import Any

from admin import after, before, probes, removal
from admin.findings import Finding, error, note, ok, warning
from admin.reader import ENDPOINTSLICES, KINDS, Reader
from admin.servers import UnreachableError
from kube import decode, request
from kube.errors import KubeError
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Phase, Snapshot
from policy.cluster.usage_report import usage_line
from policy.names import (
    LABEL_ROLE,
    MANAGER,
    POLICY_CONFIGMAP,
    SCHEDULING_CONFIGMAP,
    SYSTEM_NAMESPACE,
)

SERVERS = ("webhook", "extender", "reconciler")
_PART_OF = "app.kubernetes.io/part-of=edl"
_API_SERVICE = "kubernetes.io/service-name=kubernetes"
_RENEW = "replace it (docs/install.md, Certificates)"
Ask = Callable[[str], Mapping[str, Any]]
"""Takes the name of one of EDL's pods; returns the pod's response to /readyz."""
Check = Callable[[], Iterable[Finding]]


def check(
    reader: Reader,
    now: datetime,
    namespaces: Iterable[str],
) -> list[Finding]:
    """Checks whether the cluster is ready for EDL.

    Args:
        reader: Reads the cluster.
        now: This machine's time, time zone aware.
        namespaces: Namespaces intended for elastic Jobs.
    """
    checks: dict[str, Check] = {
        "Kubernetes": lambda: [before.version(reader.version())],
        "rights": lambda: [before.rights({r: reader.is_allowed(r) for r in before.RIGHTS})],
        "managedBy and clocks": partial(_job_and_clocks, reader, now),
        "API server": lambda: [
            before.api_ports(reader.all(ENDPOINTSLICES, "default", labels=_API_SERVICE))
        ],
        "priority classes": lambda: before.priority_classes(reader.all(request.PRIORITYCLASSES)),
        "another EDL": lambda: [before.second_installation(_installations(reader))],
        "scheduler": lambda: [before.schedulers(reader.all(request.PODS, "kube-system"))],
        "webhooks": lambda: [before.webhooks(_registrations(reader))],
        "namespaces": partial(_namespaces, reader, tuple(namespaces)),
    }
    return _run(checks)


def doctor(reader: Reader, now: datetime, ask: Ask) -> list[Finding]:
    """Checks whether EDL works.

    Args:
        reader: Reads the cluster.
        now: This machine's time, time zone aware.
        ask: Reads /readyz of EDL's servers.
    """
    namespace = SYSTEM_NAMESPACE
    ask = cache(ask)
    checks: dict[str, Check] = {
        "servers": partial(_servers, reader, ask),
        "replicas": partial(_replicas, reader),
        "extender's calls": partial(_calls, reader, ask),
        "leader": partial(_leader, reader, now),
        "admission": lambda: [
            after.webhook_called(reader.dry_run(request.JOBS, "default", probes.job()))
        ],
        "policy": lambda: [
            after.policy(reader.get(request.CONFIGMAPS, namespace, POLICY_CONFIGMAP))
        ],
        "extender's entries": lambda: [
            after.scheduling(reader.get(request.CONFIGMAPS, namespace, SCHEDULING_CONFIGMAP))
        ],
        "certificates": partial(_certificates, reader, now),
        "priority classes": lambda: before.priority_classes(reader.all(request.PRIORITYCLASSES)),
        "another EDL": lambda: [
            before.second_installation(set(_installations(reader)) - {SYSTEM_NAMESPACE})
        ],
        "cluster": partial(_cluster, reader),
    }
    return _run(checks)


def remains(reader: Reader) -> list[Finding]:
    """Reports how a removal of EDL affects jobs, and which objects of EDL are left."""

    def objects() -> Iterator[tuple[str, Mapping[str, Any]]]:
        for kind in KINDS:
            for obj in reader.all(kind, labels=_PART_OF):
                yield kind.plural, obj

    return _run(
        {
            "jobs": lambda: removal.jobs(reader.all(request.JOBS)),
            "pods": lambda: [removal.pods(reader.all(request.PODS))],
            "objects": lambda: removal.remains(objects()),
        }
    )


def _run(checks: Mapping[str, Check]) -> list[Finding]:
    findings: list[Finding] = []
    for subject, run in checks.items():
        try:
            findings += run()
        except KubeError as fault:
            findings.append(warning(subject, f"not checked: {fault}"))
    return findings


def _job_and_clocks(reader: Reader, now: datetime) -> Iterator[Finding]:
    job = reader.dry_run(request.JOBS, "default", probes.job(MANAGER))
    yield before.managed_by(job)
    api_s = decode.seconds(job["metadata"].get("creationTimestamp"))
    yield before.clock(api_s, now.timestamp())
    leases = reader.all(request.LEASES, "kube-node-lease")
    renewed = {
        lease["metadata"]["name"]: decode.seconds(lease.get("spec", {}).get("renewTime"))
        for lease in leases
    }
    yield before.kubelet_clocks(renewed, api_s)


def _registrations(reader: Reader) -> list[dict[str, Any]]:
    return reader.all(request.MUTATINGWEBHOOKS) + reader.all(request.VALIDATINGWEBHOOKS)


def _installations(reader: Reader) -> list[str]:
    deployments = reader.all(request.DEPLOYMENTS, labels=_PART_OF)
    return before.installations(deployments, _registrations(reader))


def _namespaces(reader: Reader, namespaces: tuple[str, ...]) -> Iterator[Finding]:
    for namespace in (SYSTEM_NAMESPACE, *namespaces):
        if reader.get(request.NAMESPACES, None, namespace) is None:
            text = "does not exist yet, so admission there is not checked"
            yield note(f"namespace {namespace}", text)
            continue
        is_own = namespace == SYSTEM_NAMESPACE
        objects = {} if is_own else probes.master_objects(namespace)
        refusals = {
            kind.kind: reader.refusal(kind, namespace, body)
            for kind, body in ((request.PODS, probes.pod()), *objects.items())
        }
        purpose = "EDL's servers" if is_own else "masters of jobs"
        yield from before.admission(namespace, purpose, refusals)


def _servers(reader: Reader, ask: Ask) -> Iterator[Finding]:
    versions: dict[str, str] = {}
    config_map = reader.get(request.CONFIGMAPS, SYSTEM_NAMESPACE, SCHEDULING_CONFIGMAP)
    for server in SERVERS:
        name = f"edl-{server}"
        pods = _pods_of(reader, name)
        deployment = reader.get(request.DEPLOYMENTS, SYSTEM_NAMESPACE, name)
        if server == "extender" and deployment is None:
            yield after.no_extender(config_map)
            continue
        yield after.deployment(name, deployment, pods)
        for pod in pods:
            if pod.get("status", {}).get("phase") == "Running":
                yield from _page(server, pod["metadata"]["name"], ask, versions)
    if versions:
        yield after.same_policy(versions)


def _pods_of(reader: Reader, name: str) -> list[dict[str, Any]]:
    return reader.all(request.PODS, SYSTEM_NAMESPACE, labels=f"app.kubernetes.io/name={name}")


def _replicas(reader: Reader) -> Iterator[Finding]:
    nodes = [decode.node(obj) for obj in reader.all(request.NODES)]
    for name in (f"edl-{server}" for server in SERVERS):
        pods = [decode.pod(obj) for obj in _pods_of(reader, name)]
        live = [pod for pod in pods if pod.phase is Phase.RUNNING and not pod.deleting]
        yield from after.apart(name, live, nodes)


def _calls(reader: Reader, ask: Ask) -> Iterator[Finding]:
    trainers = [decode.pod(obj) for obj in reader.all(request.PODS, labels=LABEL_ROLE)]
    for pod in _pods_of(reader, "edl-extender"):
        with suppress(UnreachableError):  # `_page` reports this
            yield from after.unasked(pod, ask(pod["metadata"]["name"]), trainers)


def _page(server: str, pod: str, ask: Ask, versions: dict[str, str]) -> list[Finding]:
    try:
        details = ask(pod)
    except UnreachableError as fault:
        return [warning(pod, f"could not read /readyz: {fault}")]
    in_force = details.get("policy")
    if isinstance(in_force, Mapping):
        versions[pod] = str(in_force.get("version"))
    try:
        return after.page(pod, server, details)
    except (TypeError, ValueError, AttributeError) as fault:
        return [error(pod, f"its /readyz has the format of another version of EDL ({fault})")]


def _leader(reader: Reader, now: datetime) -> list[Finding]:
    lease = reader.get(request.LEASES, SYSTEM_NAMESPACE, "edl-reconciler")
    renewed_s = decode.seconds((lease or {}).get("spec", {}).get("renewTime"))
    return [after.lease(lease, renewed_s, now.timestamp())]


def _certificates(reader: Reader, now: datetime) -> Iterator[Finding]:
    secret = reader.get(request.SECRETS, SYSTEM_NAMESPACE, "edl-extender-tls")
    if secret is None:
        text = "Secret edl-extender-tls is missing: the webhook creates it; see its log"
        yield note("extender's certificate", text)
    else:
        for name in ("tls.crt", "ca.crt"):
            pem = after.pem(secret.get("data", {}).get(name, ""))
            yield after.certificate(f"extender's {name}", pem, now, _RENEW)
    for kind in (request.MUTATINGWEBHOOKS, request.VALIDATINGWEBHOOKS):
        registration = reader.get(kind, None, "edl-webhook")
        if registration is None:
            yield error(kind.kind, "edl-webhook is missing: apply deploy/base again")
        else:
            hooks = registration.get("webhooks", ())
            texts = [str(hook.get("clientConfig", {}).get("caBundle", "")) for hook in hooks]
            yield after.bundles(kind.kind, texts, now)


def _cluster(reader: Reader) -> Iterator[Finding]:
    nodes = tuple(decode.node(obj) for obj in reader.all(request.NODES))
    pods = tuple(decode.pod(obj) for obj in reader.all(request.PODS))
    jobs = [job for obj in reader.all(request.JOBS) if (job := decode.job(obj)) is not None]
    yield ok("cluster", usage_line(ClusterState.of(Snapshot(nodes, pods))))
    live = [job for job in jobs if not job.finished]
    active = sum(job.status.active for job in live)
    yield ok("elastic jobs", f"{len(live)} with {active} trainers")
