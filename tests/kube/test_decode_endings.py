"""How pods ended: whether their containers ran, and for how long."""

from typing import Any

import pytest

from kube import decode
from tests.kube.items import plain_pod

_EPOCH = "1970-01-01T00:00:00Z"


def _ended(start: str | None, end: str) -> dict[str, Any]:
    return {"state": {"terminated": {"startedAt": start, "finishedAt": end}}}


@pytest.mark.parametrize(
    ("containers", "init", "ran_s"),
    [
        ([("10:00:01", "10:00:05")], [], 4.0),
        ([("10:00:03", "10:00:05"), ("10:00:04", "10:00:09")], [], 6.0),
        ([("10:00:20", "10:00:21")], [("10:00:01", "10:00:19")], 20.0),
        ([], [("10:00:01", "10:00:02")], 1.0),
    ],
)
def test_a_pod_ran_from_its_first_container_to_its_last(
    containers: list[tuple[str, str]], init: list[tuple[str, str]], ran_s: float
) -> None:
    """Init containers count."""
    status = {
        name: [_ended(f"2026-11-20T{start}Z", f"2026-11-20T{end}Z") for start, end in times]
        for name, times in (("containerStatuses", containers), ("initContainerStatuses", init))
    }
    pod = decode.pod(plain_pod(phase="Failed", **status))

    assert (pod.ran_s, pod.rejected) == (ran_s, False)


@pytest.mark.parametrize("start", [_EPOCH, None])
def test_a_container_that_could_not_be_started_ran_for_no_time(start: str | None) -> None:
    """StartError: so says the runtime of a node whose GPU driver is broken."""
    statuses = [_ended(start, "2026-11-20T10:00:00Z")]
    pod = decode.pod(plain_pod(phase="Failed", containerStatuses=statuses))

    assert (pod.ran_s, pod.rejected) == (0.0, False)


@pytest.mark.parametrize(
    ("status", "rejected"),
    [
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, True),
        ({"phase": "Failed", "reason": "OutOfcpu"}, True),
        ({"phase": "Failed", "reason": "TopologyAffinityError", "containerStatuses": []}, True),
        ({"phase": "Failed", "containerStatuses": [{"state": {"waiting": {}}}]}, True),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, False),
        ({"phase": "Pending"}, False),
        ({"phase": "Succeeded"}, False),
    ],
)
def test_a_pod_that_failed_without_a_container_was_rejected(
    status: dict[str, Any], *, rejected: bool
) -> None:
    """By its kubelet; a pod that ran into its own deadline was not. Only OutOf... means lack of room."""
    pod = decode.pod(plain_pod(**status))

    assert (pod.ran_s, pod.rejected) == (0.0, rejected)
    assert pod.lacked_room == (status.get("reason") == "OutOfcpu")
