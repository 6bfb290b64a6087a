from typing import Any

import pytest

from kube import decode
from policy.cluster.failure_rules import FailureAction
from policy.names import MASTER_CONTAINER
from tests.reconciler import objects


def _pod(phase: str = "Failed", policy: str = "OnFailure", trainer: bool = True) -> dict[str, Any]:
    def container(name: str, code: int, restarts: int) -> dict[str, Any]:
        state = {"terminated": {"exitCode": code}} if code >= 0 else {"running": {}}
        return {"name": name, "state": state, "restartCount": restarts}

    pod = objects.pod("net-trainer-0", restartPolicy=policy)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "net", "uid": "j", "controller": True}
    pod["metadata"] |= {"uid": "u", "ownerReferences": [owner] if trainer else []}
    pod["status"] = {
        "phase": phase,
        "containerStatuses": [container("main", 42, 3), container("log", -1, 1)],
        "initContainerStatuses": [container(MASTER_CONTAINER, 143, 9), container("setup", 0, 2)],
        "conditions": [{"type": "ConfigIssue", "status": "True"}],
    }
    return pod


def test_a_failed_trainer_carries_exit_codes_and_conditions() -> None:
    """For the rules of podFailurePolicy; the master's sidecar is not the job's program."""
    pod = decode.pod(_pod())

    assert pod.exits == (("main", 42), ("setup", 0))
    assert pod.end_conditions == (("ConfigIssue", "True"),)


@pytest.mark.parametrize("pod", [_pod("Running"), _pod("Succeeded"), _pod(trainer=False)], ids=str)
def test_other_pods_carry_neither(pod: dict[str, Any]) -> None:
    """There are thousands of them."""
    assert (decode.pod(pod).exits, decode.pod(pod).end_conditions) == ((), ())


@pytest.mark.parametrize(
    ("pod", "restarts"),
    [(_pod("Running"), 6), (_pod("Running", "Never"), 0), (_pod("Running", trainer=False), 0)],
)
def test_restarts_are_those_of_a_trainer_that_restarts_on_failure(
    pod: dict[str, Any], restarts: int
) -> None:
    """Of all its containers but the master; services restart without a new record."""
    assert decode.pod(pod).restarts == restarts


def test_a_pod_without_statuses_has_not_restarted() -> None:
    """It waits for its node."""
    pod = _pod("Pending") | {"status": {}}

    assert decode.pod(pod).restarts == 0


def test_a_job_carries_its_rules_and_whether_it_waits_for_ends() -> None:
    """The API server defaults podReplacementPolicy to Failed beside a podFailurePolicy."""
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    fields: dict[str, Any] = {
        "podFailurePolicy": {"rules": [rule]},
        "podReplacementPolicy": "Failed",
    }
    body, plain = objects.job("net", **fields), objects.job("plain")
    for each in (body, plain):
        each["metadata"]["uid"] = "u"
    job, plain_job = decode.job(body), decode.job(plain)
    assert job is not None
    assert plain_job is not None

    assert [rule.action for rule in job.failure_rules] == [FailureAction.FAIL_JOB]
    assert (job.replaces_ended, plain_job.replaces_ended) == (True, False)
