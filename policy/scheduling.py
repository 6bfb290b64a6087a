"""Which scheduler training pods ask for, and whether they request EDL's marker resource.

Only a kube-scheduler whose configuration has the extender's entries ignores the marker
(`ignoredByScheduler`); any other finds no node for a pod that requests it. The reconciler checks which
is the case, and the webhook reads the result (docs/decisions/0018). Pure.
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
        """The data of the ConfigMap that keeps the result."""
        return {"scheduler": self.scheduler, "extender": str(self.registration)}

    @classmethod
    def from_data(cls, data: Mapping[str, str]) -> "SchedulerCheck":
        """The result in a ConfigMap's data; unknown where that is incomplete or invalid."""
        try:
            return cls(data["scheduler"], Registration(data["extender"]))
        except (KeyError, ValueError):
            return cls()


@dataclass(frozen=True, slots=True)
class Scheduling:
    """How training pods ask for a scheduler now."""

    scheduler: str = DEFAULT_SCHEDULER
    """The scheduler of training pods whose author has named none."""
    marked: bool = False
    """Whether pods of that scheduler request the marker, so that it asks the extender."""

    def scheduler_of(self, named: str) -> str:
        """The `schedulerName` of a training pod whose author has named `named`, or the default."""
        return self.scheduler if named == DEFAULT_SCHEDULER else named

    def marks(self, named: str) -> bool:
        """Whether such a pod requests the marker: no other scheduler is known to ignore it."""
        return self.marked and self.scheduler_of(named) == self.scheduler

    @property
    def unmarked(self) -> "Scheduling":
        """The same without the marker, for a pod that waits for a node that no extender knows yet."""
        return replace(self, marked=False)

    def is_outdated(self, pod: Pod, job: Job) -> bool:
        """Whether a pod of a job was created for a scheduler that training does not use any more.

        Not where another webhook has named one after EDL: a new pod would get the same.
        """
        unknown_marker = pod.marked and not self.marks(job.scheduler)
        asked = {pod.scheduler, pod.asked_scheduler or pod.scheduler}
        return unknown_marker or self.scheduler_of(job.scheduler) not in asked


UNMARKED = Scheduling()
"""That of a scheduler of which nothing is known."""


def in_force(policy: Policy, check: SchedulerCheck) -> Scheduling:
    """How training pods ask for a scheduler, by a policy and the newest check.

    Without a result pods have no marker: they can then be scheduled in any case.
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
    """What the answer to a test pod says; the pod requests the marker and a resource of no node.

    Args:
        insufficient: The resources that the scheduler calls insufficient. The second one is
            among them as soon as the scheduler has compared the pod with a node.
    """
    if CHECK_RESOURCE not in insufficient:
        return Registration.UNKNOWN
    missing = TRAINER_RESOURCE in insufficient
    return Registration.MISSING if missing else Registration.REGISTERED
