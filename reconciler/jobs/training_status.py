"""The status of a TrainingJob, from that of its Job. Pure.

Conditions follow the API conventions of Kubernetes: `Accepted` says whether the Job exists as the
TrainingJob describes it; `Waiting`, `Suspended`, `Running`, `Succeeded` and `Failed` what it does.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kube.training_job import ENDED
from policy.admission import unstructured
from policy.names import LABEL_JOB, LABEL_ROLE, Role
from reconciler.jobs.role_counts import JobRoles, RoleCount
from reconciler.jobs.status import WAITING

PENDING, RUNNING, SUSPENDED = "Pending", "Running", "Suspended"
SUCCEEDED, FAILED = "Succeeded", "Failed"
_COUNTS = ("active", "ready", "terminating", "succeeded", "failed")
_MAX_MESSAGE_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Whether the Job is as its TrainingJob describes it, and if not, why."""

    reason: str = "JobCreated"
    message: str = "its Job exists"
    is_accepted: bool = True
    may_be_tried: bool = True
    """Whether another try could have another outcome while nothing changes."""


def status(
    training_job: Mapping[str, Any],
    job: Mapping[str, Any] | None,
    acceptance: Acceptance,
    now: str,
    roles: JobRoles | None = None,
) -> dict[str, Any]:
    """The status that a TrainingJob should have.

    Args:
        training_job: The TrainingJob with the status that it has.
        job: Its Job; None where there is none.
        acceptance: What came of the newest try to bring the Job up to date.
        now: The time, as RFC 3339; of conditions that change.
        roles: What the control loop has counted; None where it has not yet.
    """
    metadata = training_job["metadata"]
    old = unstructured.mapping(training_job, "status")
    job_status = unstructured.mapping(job or {}, "status")
    true = {
        str(condition["type"]): condition
        for condition in unstructured.objects(job_status, "conditions")
        if condition.get("status") == "True"
    }
    phase = _phase(job, job_status, true)
    waiting = true.get(WAITING, {})
    end = true.get("Complete") or true.get("Failed") or {}
    values_of_type = {
        "Accepted": (acceptance.is_accepted, acceptance.reason, acceptance.message),
        "Waiting": _copied(waiting, "NotWaiting"),
        SUSPENDED: (phase == SUSPENDED, phase, "spec.suspend decides"),
        RUNNING: (phase == RUNNING, phase, "True while a trainer is ready"),
        SUCCEEDED: _copied(true.get("Complete", {}), phase),
        FAILED: _copied(true.get("Failed", {}), phase),
    }
    reason = waiting.get("reason") or end.get("reason")
    new: dict[str, Any] = {
        "observedGeneration": metadata.get("generation", 1),
        "phase": phase,
        "reason": reason if acceptance.is_accepted else acceptance.reason,
        "selector": f"{LABEL_JOB}={metadata['name']},{LABEL_ROLE}={Role.TRAINER}",
        "trainers": {name: job_status.get(name) or 0 for name in _COUNTS},
        "roles": _roles(job_status, roles, unstructured.mapping(old, "roles"), phase),
        "startTime": job_status.get("startTime"),
        "completionTime": end.get("lastTransitionTime"),
        "conditions": [
            _condition(type_, values, old, metadata.get("generation", 1), now)
            for type_, values in values_of_type.items()
        ],
    }
    return {name: value for name, value in new.items() if value not in (None, "", {})}


def scale(old: Mapping[str, Any], new: Mapping[str, Any], cause: str) -> tuple[str, str] | None:
    """Reason and message of an event about another number of trainers; None where it is the same.

    Args:
        old: The status before.
        new: The status now.
        cause: Why the plan wants no more trainers.
    """
    before, after = (_desired(status) for status in (old, new))
    if after is None or before == after or new.get("phase") in ENDED:
        return None
    reason = "ScaledUp" if after > (before or 0) else "ScaledDown"
    text = f"from {before or 0} to {after} trainers"
    return reason, f"{text}: {cause}" if cause else text


def _desired(status: Mapping[str, Any]) -> int | None:
    trainer = unstructured.mapping(unstructured.mapping(status, "roles"), "trainer")
    value = trainer.get("desired")
    return value if isinstance(value, int) else None


def _roles(
    job_status: Mapping[str, Any], roles: JobRoles | None, old: Mapping[str, Any], phase: str
) -> dict[str, Any]:
    """Pods by role; the counts of the loop stay as they were while it has none."""
    if phase in ENDED:
        return {name: {**count, "desired": 0, "ready": 0} for name, count in old.items()}
    if roles is None:
        return dict(old)
    trainer = RoleCount(roles.trainers, job_status.get("ready") or 0, job_status.get("failed") or 0)
    counts = {"trainer": trainer, "parameterServers": roles.servers, "master": roles.master}
    return {name: asdict(count) for name, count in counts.items() if count is not None}


def _phase(
    job: Mapping[str, Any] | None, job_status: Mapping[str, Any], true: Mapping[str, Any]
) -> str:
    if "Complete" in true:
        return SUCCEEDED
    if "Failed" in true:
        return FAILED
    if job is not None and unstructured.mapping(job, "spec").get("suspend"):
        return SUSPENDED
    return RUNNING if job_status.get("ready") else PENDING


def _copied(condition: Mapping[str, Any], otherwise: str) -> tuple[bool, str, str]:
    """The values of a Job's condition that is True; `otherwise` is the reason where it is not."""
    if not condition:
        return False, otherwise, ""
    return True, str(condition.get("reason") or "Unknown"), str(condition.get("message") or "")


def _condition(
    type_: str,
    values: tuple[bool, str, str],
    old: Mapping[str, Any],
    generation: int,
    now: str,
) -> dict[str, Any]:
    """A condition; its time is that of the last change of its status."""
    is_true, reason, message = values
    text = "True" if is_true else "False"
    since = next(
        (
            condition.get("lastTransitionTime")
            for condition in unstructured.objects(old, "conditions")
            if condition.get("type") == type_ and condition.get("status") == text
        ),
        None,
    )
    return {
        "type": type_,
        "status": text,
        "observedGeneration": generation,
        "lastTransitionTime": since or now,
        "reason": reason,
        "message": message[:_MAX_MESSAGE_CHARS],
    }
