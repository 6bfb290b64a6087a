"""The fields of a pod that the measurement needs, from the API object (pure)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from e2e.workload import SYSTEM_NAMESPACE
from policy.cluster.snapshot import Phase
from policy.errors import QuantityError
from policy.names import LABEL_JOB, LABEL_ROLE, LABEL_TIER, Role, Tier
from policy.quantity import parse

_LABEL_BATCH_JOB = "batch.kubernetes.io/job-name"
"""All that marks a trainer of a Job that was created while the webhook was away."""
_REFUSED = "OutOf"
"""How the reasons of a kubelet begin that lacks a resource: OutOfcpu, OutOfmemory, OutOfpods."""


class Kind(StrEnum):
    """The part of a pod in the experiment."""

    SYSTEM = "system"
    SERVICE = "service"
    TRAINER = "trainer"
    SUPPORT = "support"
    """Parameter servers and masters."""


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod at one moment."""

    uid: str
    name: str
    kind: Kind
    job: str
    surplus: bool
    """A trainer that everybody may preempt: tier surplus, or a trainer that has no tier."""
    cpu_millis: int
    node: str
    nominated: str
    phase: Phase
    deleting: bool
    disruption: str
    """Reason of the condition DisruptionTarget; "" if there is none."""
    refused: bool = False
    """Its node had no capacity for it: it failed before its containers ran."""
    limit_millis: int = 0
    """CPU limits of its containers, or requests of containers without a limit."""

    @property
    def ended(self) -> bool:
        """Its containers have ended, so that it no longer uses capacity."""
        return self.phase in (Phase.SUCCEEDED, Phase.FAILED)

    @property
    def at_work(self) -> bool:
        """Running, and not terminating."""
        return self.phase is Phase.RUNNING and not self.deleting

    @property
    def waiting(self) -> bool:
        """Wanted and not yet running."""
        return self.phase is Phase.PENDING and not self.deleting


def view(pod: Mapping[str, Any]) -> PodView:
    """Returns the view of a core/v1 Pod as the API server sends it."""
    metadata, spec = pod["metadata"], pod["spec"]
    status = pod.get("status") or {}
    labels = metadata.get("labels") or {}
    job = labels.get(LABEL_JOB, "") or labels.get(_LABEL_BATCH_JOB, "")
    kind = _kind(metadata["namespace"], labels.get(LABEL_ROLE, ""), job)
    return PodView(
        uid=metadata["uid"],
        name=metadata["name"],
        kind=kind,
        job=job,
        surplus=kind is Kind.TRAINER and labels.get(LABEL_TIER, Tier.SURPLUS) == Tier.SURPLUS,
        cpu_millis=sum(_cpu_millis(container, "requests") for container in spec["containers"]),
        node=spec.get("nodeName", ""),
        nominated=status.get("nominatedNodeName", ""),
        phase=Phase(status.get("phase", Phase.PENDING)),
        deleting="deletionTimestamp" in metadata,
        disruption=_disruption(status),
        refused=status.get("reason", "").startswith(_REFUSED),
        limit_millis=sum(
            _cpu_millis(container, "limits") or _cpu_millis(container, "requests")
            for container in spec["containers"]
        ),
    )


def _kind(namespace: str, role: str, job: str) -> Kind:
    if role == Role.TRAINER or (job and not role):
        return Kind.TRAINER
    if role in (Role.PSERVER, Role.MASTER):
        return Kind.SUPPORT
    return Kind.SYSTEM if namespace == SYSTEM_NAMESPACE else Kind.SERVICE


def _cpu_millis(container: Mapping[str, Any], field: str) -> int:
    amounts = (container.get("resources") or {}).get(field) or {}
    try:
        return parse("cpu", str(amounts.get("cpu", "0")))
    except QuantityError:
        return 0


def _disruption(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            return str(condition.get("reason", "unknown"))
    return ""
