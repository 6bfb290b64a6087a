"""Admission plugins for the API server in memory: each takes a pod and returns what becomes of it.

They see every creation, dry runs too, as upstream; a quota counts what is stored.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from kube import errors, podspec
from policy.cluster import amounts
from policy.names import LABEL_JOB
from tests.reconciler.server import Instant

Plugin = Callable[[dict[str, Any]], dict[str, Any]]


def _job(pod: Mapping[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(LABEL_JOB, ""))


def quota(api: Instant, owner: str, **hard: int) -> Plugin:
    """A ResourceQuota over the trainers of one job: `pods`, `cpu` in thousandths."""

    def check(pod: dict[str, Any]) -> dict[str, Any]:
        if _job(pod) != owner:
            return pod
        used: dict[str, int] = {}
        for existing in api.pods():
            if existing.job == owner and not existing.terminal:
                amounts.add(used, existing.requests)
        amounts.add(used, podspec.requests(pod["spec"]))
        for name, limit in hard.items():
            if used.get(name, 0) > limit:
                text = f'pods "{pod["metadata"].get("name")}" is forbidden: exceeded quota: small'
                raise errors.Forbidden(f"{text}, limited: {name}={limit}", status=403)
        return pod

    return check


def namespace_quota(api: Instant, pods: int) -> Plugin:
    """A ResourceQuota on the number of all pods."""

    def check(pod: dict[str, Any]) -> dict[str, Any]:
        if sum(not pod.terminal for pod in api.pods()) >= pods:
            raise errors.Forbidden(f"exceeded quota: small, limited: pods={pods}", status=403)
        return pod

    return check


def resource_quota(api: Instant, cpu: int) -> Plugin:
    """A ResourceQuota on the CPU (in whole ones) of all trainers, with the words of upstream."""

    def check(pod: dict[str, Any]) -> dict[str, Any]:
        trainers = [existing for existing in api.pods() if existing.job and not existing.terminal]
        used = sum(trainer.requests.get("cpu", 0) for trainer in trainers)
        requested = podspec.requests(pod["spec"]).get("cpu", 0)
        if _job(pod) and used + requested > cpu * 1000:
            text = (
                f'pods "{pod["metadata"].get("name")}" is forbidden: exceeded quota: team, '
                f"requested: cpu={requested}m, used: cpu={used}m, limited: cpu={cpu}"
            )
            raise errors.Forbidden(text, status=403)
        return pod

    return check


def pod_security(owner: str) -> Plugin:
    """The pods of one job violate the namespace's Pod Security level."""

    def check(pod: dict[str, Any]) -> dict[str, Any]:
        if _job(pod) == owner:
            text = (
                "pods are forbidden: violates PodSecurity restricted:latest: runAsNonRoot != true"
            )
            raise errors.Forbidden(text, status=403)
        return pod

    return check


def sidecar_injector(cpu: str = "100m", memory: str = "128Mi") -> Plugin:
    """A mutating webhook that adds a container with these requests to every pod."""

    def mutate(pod: dict[str, Any]) -> dict[str, Any]:
        injected = deepcopy(pod)
        resources = {"requests": {"cpu": cpu, "memory": memory}}
        proxy = {"name": "proxy", "image": "proxy", "resources": resources}
        injected["spec"]["containers"].append(proxy)
        return injected

    return mutate


def scheduler_name(name: str) -> Plugin:
    """A mutating webhook of another scheduler, such as YuniKorn's, that claims every pod."""

    def mutate(pod: dict[str, Any]) -> dict[str, Any]:
        return {**pod, "spec": {**pod["spec"], "schedulerName": name}}

    return mutate


def limit_range(cpu: str) -> Plugin:
    """A LimitRange: containers without a request for CPU get this one."""

    def mutate(pod: dict[str, Any]) -> dict[str, Any]:
        filled = deepcopy(pod)
        for container in filled["spec"]["containers"]:
            resources = container.setdefault("resources", {})
            requests = resources.setdefault("requests", {})
            requests.setdefault("cpu", cpu)
        return filled

    return mutate
