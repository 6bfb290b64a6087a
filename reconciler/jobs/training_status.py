"""Computes the status of a TrainingJob from the status of its Job. Pure.

Conditions follow the Kubernetes API conventions. `Accepted` says whether the Job exists as the
TrainingJob describes it; `Waiting`, `Suspended`, `Running`, `Succeeded` and `Failed` describe the Job's state.
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
    """Whether the Job matches its TrainingJob, and if not, why."""

    reason: str = "JobCreated"
    message: str = "its Job exists"
    is_accepted: bool = True
    may_be_tried: bool = True
    """Whether another attempt could succeed even if nothing changes."""


@dataclass(frozen=True, slots=True)
class _State:
    """The state of a condition."""

    is_true: bool
    reason: str
    message: str


def status(
    training_job: Mapping[str, Any],
    job: Mapping[str, Any] | None,
    acceptance: Acceptance,
    now: str,
    roles: JobRoles | None = None,
) -> dict[str, Any]:
    """Returns the status that a TrainingJob should have.

    Args:
        training_job: The TrainingJob with its current status.
        job: Its Job, or None if it does not exist.
        acceptance: The result of the last attempt to bring the Job up to date.
        now: The current time in RFC 3339, for conditions that change.
        roles: The role counts of the control loop, or None if it has not counted yet.
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
    states = {
        "Accepted": _State(acceptance.is_accepted, acceptance.reason, acceptance.message),
        "Waiting": _copied(waiting, "NotWaiting"),
        SUSPENDED: _State(phase == SUSPENDED, phase, "spec.suspend decides"),
        RUNNING: _State(phase == RUNNING, phase, "True while a trainer is ready"),
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
            _condition(type_, state, old, metadata.get("generation", 1), now)
            for type_, state in states.items()
        ],
    }
    return {name: value for name, value in new.items() if value not in (None, "", {})}


def scale(old: Mapping[str, Any], new: Mapping[str, Any], cause: str) -> tuple[str, str] | None:
    """Returns reason and message of an event about a new number of trainers, or None if it has not changed.

    Args:
        old: The previous status.
        new: The current status.
        cause: Why the plan gives the job no more trainers.
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
    """Returns the pods by role; without counts from the loop, the previous ones are kept."""
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


def _copied(condition: Mapping[str, Any], otherwise: str) -> _State:
    """Returns the state of a Job's condition that is True; if it is {}, a False state with reason `otherwise`."""
    if not condition:
        return _State(False, otherwise, "")
    reason, message = condition.get("reason"), condition.get("message")
    return _State(True, str(reason or "Unknown"), str(message or ""))


def _condition(
    type_: str,
    state: _State,
    old: Mapping[str, Any],
    generation: int,
    now: str,
) -> dict[str, Any]:
    """Returns a condition; its transition time changes only with its status."""
    text = "True" if state.is_true else "False"
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
        "reason": state.reason,
        "message": state.message[:_MAX_MESSAGE_CHARS],
    }
