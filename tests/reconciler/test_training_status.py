"""The status of a TrainingJob from that of its Job, condition by condition."""

from typing import Any

import pytest

from reconciler.jobs import training_status
from reconciler.jobs.training_status import Acceptance

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def _status(
    *conditions: dict[str, Any], generation: int = 1, old: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The status with a Job that has these conditions, all of them True."""
    job = {"status": {"conditions": [{**condition, "status": "True"} for condition in conditions]}}
    metadata = {"name": "digits", "generation": generation}
    training_job = {"metadata": metadata, "status": old or {}}
    return training_status.status(training_job, job, Acceptance(), NOW)


def _conditions(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {condition["type"]: condition for condition in status["conditions"]}


def test_a_condition_that_the_job_does_not_have_is_false() -> None:
    """With the phase, or that nothing is waited for, as the reason."""
    conditions = _conditions(_status())

    assert {name: (c["status"], c["reason"]) for name, c in conditions.items()} == {
        "Accepted": ("True", "JobCreated"),
        "Waiting": ("False", "NotWaiting"),
        "Suspended": ("False", "Pending"),
        "Running": ("False", "Pending"),
        "Succeeded": ("False", "Pending"),
        "Failed": ("False", "Pending"),
    }


@pytest.mark.parametrize(
    ("job_type", "own_type"),
    [
        ("edl.training/Waiting", "Waiting"),
        ("Complete", "Succeeded"),
        ("Failed", "Failed"),
    ],
)
def test_what_the_job_says_is_the_reason(job_type: str, own_type: str) -> None:
    """Of its condition, and of the status as a whole."""
    status = _status({"type": job_type, "reason": "Word", "message": "a sentence"})

    condition = _conditions(status)[own_type]
    assert (condition["status"], condition["reason"]) == ("True", "Word")
    assert condition["message"] == "a sentence"
    assert status["reason"] == "Word"


def test_all_of_it_is_about_the_generation_that_was_read() -> None:
    """Whoever has changed the TrainingJob sees when the status is about the change."""
    status = _status(generation=7)

    assert status["observedGeneration"] == 7
    assert {condition["observedGeneration"] for condition in status["conditions"]} == {7}


def test_the_time_of_a_condition_is_that_of_its_last_change() -> None:
    """It stays while only reason, message or generation change."""
    before = _status()
    for condition in before["conditions"]:
        condition["lastTransitionTime"] = THEN

    after = _status({"type": "Failed", "reason": "Word"}, generation=2, old=before)

    changed = {c["type"] for c in after["conditions"] if c["lastTransitionTime"] == NOW}
    unchanged = {c["type"] for c in after["conditions"] if c["lastTransitionTime"] == THEN}
    assert changed == {"Failed"}
    assert unchanged == {"Accepted", "Waiting", "Suspended", "Running", "Succeeded"}
