"""What a training pod's spec says to the scheduler: its name, the marker, the planned node. Pure."""

from typing import Any

from policy.names import ANNOTATION_SCHEDULER, DEFAULT_SCHEDULER, TRAINER_RESOURCE
from policy.scheduling import Scheduling
from reconciler.manifests import affinity


def address(spec: dict[str, Any], scheduling: Scheduling, node: str) -> dict[str, str]:
    """Addresses a pod spec, which is changed, to the scheduler in force.

    With the marker the scheduler asks the extender, which prefers the planned node. Without it the
    pod prefers that node by itself; the plan may be wrong by then, so it is a preference only.

    Args:
        spec: A core/v1 PodSpec.
        scheduling: How training pods ask for a scheduler now.
        node: The planned node.

    Returns:
        The annotation with the scheduler, which other webhooks do not change.
    """
    named = spec.get("schedulerName") or DEFAULT_SCHEDULER
    scheduler = scheduling.scheduler_of(named)
    if scheduler != named:
        spec["schedulerName"] = scheduler
    if scheduling.marks(named):
        _request_marker(spec)
    elif node:
        affinity.prefer_node(spec, node)
    return {ANNOTATION_SCHEDULER: scheduler}


def _request_marker(spec: dict[str, Any]) -> None:
    """Requests the extended resource for which kube-scheduler calls the extender."""
    containers = spec.get("containers") or []
    if containers:
        resources = containers[0]["resources"] = containers[0].get("resources") or {}
        for part in ("requests", "limits"):
            resources[part] = {**(resources.get(part) or {}), TRAINER_RESOURCE: "1"}
