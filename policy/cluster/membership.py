"""The job, role and tier of a pod, from fields that cannot be edited: name, controller, priority class.

Labels can be edited while a pod runs, so they decide only if the other fields say nothing: for pods
that EDL did not create and whose priority class is not one of EDL's. Pure. Called by `kube.decode`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from policy.admission.unstructured import number
from policy.names import (
    CLASS_SURPLUS,
    LABEL_JOB,
    LABEL_ROLE,
    SERVER_INFIX,
    TRAINER_INFIX,
    Role,
    Tier,
    server_name,
)
from policy.priority_classes import EDL_CLASSES, TIER_OF

_ROLES = {str(role): role for role in Role}
_SURPLUS = EDL_CLASSES[CLASS_SURPLUS].value


class Controller(NamedTuple):
    """The controller that owns a pod; all text fields are "" if there is none."""

    uid: str = ""
    name: str = ""
    is_job: bool = False
    """Whether it is a batch/v1 Job."""


NO_CONTROLLER = Controller()


class Membership(NamedTuple):
    """The job, role and tier of a pod."""

    job: str = ""
    """Name of the pod's job; "" for none."""
    role: Role | None = None
    """The pod's role; None for a pod outside training."""
    tier: Tier | None = None
    trainer_id: int = -1
    server: int = -1
    """Index of a parameter server that EDL created."""


def of(
    name: str,
    controller: Controller,
    labels: Mapping[str, str],
    priority_class: str,
    priority: int,
) -> Membership:
    """Returns the job, role and tier of a pod.

    EDL's trainers and parameter servers are recognized by their name and the Job that controls them.
    Any other pod with one of EDL's priority classes is a training pod too, whatever its labels say:
    it was admitted with that class, and kube-scheduler preempts it by the class.

    Args:
        name: Name of the pod.
        controller: Its controller.
        labels: Its labels.
        priority_class: `spec.priorityClassName`, "" for none.
        priority: `spec.priority`.
    """
    if controller.is_job:
        trainer_id, server = _numbers(name, controller.name)
        if trainer_id >= 0 or server >= 0:
            role = Role.TRAINER if trainer_id >= 0 else Role.PSERVER
            tier = _tier(role, priority_class, priority)
            return Membership(controller.name, role, tier, trainer_id, server)
    labelled_role = _role(TIER_OF.get(priority_class), labels)
    job = labels.get(LABEL_JOB) or ""
    if labelled_role is None:
        return Membership(job)
    if controller.is_job:
        job = controller.name
    return Membership(job, labelled_role, _tier(labelled_role, priority_class, priority))


def _numbers(name: str, job: str) -> tuple[int, int]:
    """Returns (trainer id, parameter server index) from the name of a job's pod; a missing one is -1."""
    head, infix, digits = name.rpartition(TRAINER_INFIX)
    if infix and head == job:
        return number(digits), -1
    _, infix, digits = name.rpartition(SERVER_INFIX)
    index = number(digits) if infix else -1
    return -1, index if index >= 0 and server_name(job, index) == name else -1


def _role(tier: Tier | None, labels: Mapping[str, str]) -> Role | None:
    """Returns the role in the label if the tier of the pod's class allows it, or else that tier's role."""
    role = _ROLES.get(labels.get(LABEL_ROLE, ""))
    if tier is None:
        return role
    if tier is Tier.SUPPORT:
        return Role.MASTER if role is Role.MASTER else Role.PSERVER
    return Role.TRAINER


def _tier(role: Role, priority_class: str, priority: int) -> Tier:
    """Returns the tier of one of EDL's classes; for any other class, the tier by role and priority."""
    tier = TIER_OF.get(priority_class)
    if tier is not None:
        return tier
    if role is not Role.TRAINER:
        return Tier.SUPPORT
    return Tier.SURPLUS if priority <= _SURPLUS else Tier.GUARANTEED
