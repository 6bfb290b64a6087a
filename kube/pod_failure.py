"""Reads failures from the status of a trainer's pod: restarts, exit codes and conditions. Pure.

The job's own containers count; the sidecar of EDL's master does not.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from policy.names import MASTER_CONTAINER


def restarts(spec: Mapping[str, Any], status: Mapping[str, Any]) -> int:
    """Returns the restarts of all containers of a pod with restartPolicy OnFailure; 0 for other pods."""
    if spec.get("restartPolicy") != "OnFailure":
        return 0
    return sum(container.get("restartCount") or 0 for container in _containers(status))


def exits(status: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Returns (name, exit code) of the containers that have terminated, init containers last."""
    return tuple(
        (container["name"], terminated.get("exitCode") or 0)
        for container in _containers(status)
        if (terminated := (container.get("state") or {}).get("terminated"))
    )


def conditions(status: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Returns (type, status) of the pod's conditions."""
    return tuple((c["type"], c["status"]) for c in status.get("conditions") or ())


def is_rejected(status: Mapping[str, Any]) -> bool:
    """Returns whether a kubelet rejected the pod, for example with UnexpectedAdmissionError.

    A pod that reached its own `activeDeadlineSeconds` was accepted, even if nothing was started.
    """
    return status.get("reason") != "DeadlineExceeded" and not ended_containers(status)


def ended_containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the status of the terminated containers, including the master's sidecar."""
    return [
        container
        for statuses in ("initContainerStatuses", "containerStatuses")
        for container in status.get(statuses) or ()
        if (container.get("state") or {}).get("terminated")
    ]


def _containers(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for field in ("containerStatuses", "initContainerStatuses"):
        for container in status.get(field) or ():
            if container["name"] != MASTER_CONTAINER:
                yield container
