"""What a pod is in training, from what nobody can edit: its name, controller and priority class.

Labels can be edited while a pod runs, so they decide only where the rest says nothing: about pods
that EDL has not created, and whose class is not one of EDL's. Pure. Called by `kube.decode`.
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
    """The controller that owns a pod; without one all fields are ""."""

    uid: str = ""
    name: str = ""
    is_job: bool = False
    """Whether it is a batch/v1 Job."""


NO_CONTROLLER = Controller()


class Membership(NamedTuple):
    """The job, role and tier of a pod."""

    job: str = ""
    """Name of its job; "" for none."""
    role: Role | None = None
    """None for a pod that is not training."""
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
    """What a pod is in training.

    EDL's trainers and parameter servers are known by their name and the Job that controls them.
    Any other pod of one of EDL's priority classes is training too, whatever its labels say: the
    class is what it was admitted with, and what kube-scheduler preempts it by.

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
    """(trainer id, index of a parameter server) in the name of a job's pod; -1 for neither."""
    head, infix, digits = name.rpartition(TRAINER_INFIX)
    if infix and head == job:
        return number(digits), -1
    _, infix, digits = name.rpartition(SERVER_INFIX)
    index = number(digits) if infix else -1
    return -1, index if index >= 0 and server_name(job, index) == name else -1


def _role(tier: Tier | None, labels: Mapping[str, str]) -> Role | None:
    """The role in the label, where a pod with the tier of its class can have it."""
    role = _ROLES.get(labels.get(LABEL_ROLE, ""))
    if tier is None:
        return role
    if tier is Tier.SUPPORT:
        return Role.MASTER if role is Role.MASTER else Role.PSERVER
    return Role.TRAINER


def _tier(role: Role, priority_class: str, priority: int) -> Tier:
    """The tier of the class; of a foreign one, by its priority."""
    tier = TIER_OF.get(priority_class)
    if tier is not None:
        return tier
    if role is not Role.TRAINER:
        return Tier.SUPPORT
    return Tier.SURPLUS if priority <= _SURPLUS else Tier.GUARANTEED
