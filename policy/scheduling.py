"""The scheduler of training pods, and whether they request EDL's marker resource. Pure.

Only a kube-scheduler with the extender in its configuration ignores the marker (`ignoredByScheduler`). Any
other scheduler finds no node for a pod that requests it. The reconciler checks the scheduler, and the
webhook reads the result (docs/decisions/0018).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from policy.cluster.snapshot import Job, Pod
from policy.document.model import ExtenderUse, Policy
from policy.names import CHECK_RESOURCE, DEFAULT_SCHEDULER, TRAINER_RESOURCE


class Registration(StrEnum):
    """Whether a scheduler's configuration has the extender's entries."""

    REGISTERED = "registered"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SchedulerCheck:
    """The result of the newest check of a scheduler."""

    scheduler: str = DEFAULT_SCHEDULER
    registration: Registration = Registration.UNKNOWN

    def to_data(self) -> dict[str, str]:
        """Returns the data of the ConfigMap that stores the result."""
        return {"scheduler": self.scheduler, "extender": str(self.registration)}

    @classmethod
    def from_data(cls, data: Mapping[str, str]) -> "SchedulerCheck":
        """Returns the result in the data of a ConfigMap; unknown if the data is incomplete or invalid."""
        try:
            return cls(data["scheduler"], Registration(data["extender"]))
        except (KeyError, ValueError):
            return cls()


@dataclass(frozen=True, slots=True)
class Scheduling:
    """The scheduler of training pods, and the use of the marker, at present."""

    scheduler: str = DEFAULT_SCHEDULER
    """The scheduler of training pods that do not name one."""
    marked: bool = False
    """Whether pods of that scheduler request the marker, so that it calls the extender."""

    def scheduler_of(self, named: str) -> str:
        """Returns the `schedulerName` of a training pod, given the one in its template."""
        return self.scheduler if named == DEFAULT_SCHEDULER else named

    def marks(self, named: str) -> bool:
        """Returns whether a training pod requests the marker, given the `schedulerName` in its template.

        Only the checked scheduler is known to ignore the marker.
        """
        return self.marked and self.scheduler_of(named) == self.scheduler

    @property
    def unmarked(self) -> "Scheduling":
        """Returns the same scheduler without the marker, for pods that wait for a node unknown to the extender."""
        return replace(self, marked=False)

    def is_outdated(self, pod: Pod, job: Job) -> bool:
        """Returns whether a pod was created for a scheduler that training no longer uses.

        A pod is not outdated if another webhook set its scheduler after EDL, because a new pod would
        get the same scheduler.
        """
        unknown_marker = pod.marked and not self.marks(job.scheduler)
        asked = {pod.scheduler, pod.asked_scheduler or pod.scheduler}
        return unknown_marker or self.scheduler_of(job.scheduler) not in asked


UNMARKED = Scheduling()
"""The default scheduler, without the marker."""


def in_force(policy: Policy, check: SchedulerCheck) -> Scheduling:
    """Returns the scheduler of training pods, according to the policy and the newest check.

    If there is no check result, pods get no marker, so that every scheduler can place them.
    """
    settings = policy.scheduling
    is_known = (
        check.scheduler == settings.scheduler_name and check.registration is Registration.REGISTERED
    )
    marked = settings.extender is ExtenderUse.ALWAYS or (
        settings.extender is ExtenderUse.AUTO and is_known
    )
    return Scheduling(settings.scheduler_name, marked)


def registration_by(insufficient: Collection[str]) -> Registration:
    """Returns whether the extender is registered, according to the scheduler's answer to a test pod.

    The test pod requests the marker and `CHECK_RESOURCE`, which no node has.

    Args:
        insufficient: The resources that the scheduler reports as insufficient. `CHECK_RESOURCE` is
            among them once the scheduler has compared the pod with a node.
    """
    if CHECK_RESOURCE not in insufficient:
        return Registration.UNKNOWN
    missing = TRAINER_RESOURCE in insufficient
    return Registration.MISSING if missing else Registration.REGISTERED
