"""backoffLimit, podFailurePolicy and podReplacementPolicy of elastic jobs, from a cluster in memory."""

from typing import Any

import pytest

from kube import request
from kube.request import PODS
from policy.cluster.snapshot import Pod
from tests.reconciler.world import Process, World


def _rule(action: str, code: int) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": "In", "values": [code]}}


def _fail(world: World, pod: Pod, code: int) -> None:
    now = world.clock.now().isoformat()
    state = {"terminated": {"exitCode": code, "finishedAt": now}}
    status = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": state}]}
    body = {"status": status}
    world.ask(request.merge_patch(PODS, "ml", pod.name, body, subresource="status"))


def _restart(world: World, pod: Pod, count: int) -> None:
    status = {"containerStatuses": [{"name": "main", "restartCount": count, "state": {}}]}
    body = {"status": status}
    world.ask(request.merge_patch(PODS, "ml", pod.name, body, subresource="status"))


def _ends(world: World) -> list[tuple[str, str]]:
    return [(c.type, c.reason) for c in world.job("net").status.conditions if c.status == "True"]


def _add_job(world: World, restart_policy: str = "Never", **spec: Any) -> None:
    world.add_job("net", 2, 2, **spec)
    template = {"spec": {"template": {"spec": {"restartPolicy": restart_policy}}}}
    world.change_job("net", template)


def _run_restarting(world: World, process: Process, limit: int, restarts: tuple[int, int]) -> None:
    """A job of two trainers, whose containers restart as often as given."""
    _add_job(world, "OnFailure", backoffLimit=limit)
    process.run(3)
    for pod, count in zip(world.running("net"), restarts, strict=True):
        _restart(world, pod, count)
    process.run(3)


@pytest.mark.parametrize(("limit", "restarts"), [(3, (1, 1)), (0, (0, 0)), (1, (0, 0))])
def test_restarts_below_the_limit_end_nothing(
    world: World, process: Process, limit: int, restarts: tuple[int, int]
) -> None:
    """They are what restartPolicy OnFailure is for."""
    _run_restarting(world, process, limit, restarts)

    assert _ends(world) == []


@pytest.mark.parametrize(("limit", "restarts"), [(3, (2, 1)), (0, (1, 0)), (1, (0, 1))])
def test_restarts_count_for_the_back_off_limit(
    world: World, process: Process, limit: int, restarts: tuple[int, int]
) -> None:
    """The sum over the trainers that live, as in the built-in controller."""
    _run_restarting(world, process, limit, restarts)

    reason = "BackoffLimitExceeded"
    assert _ends(world) == [("FailureTarget", reason), ("Failed", reason)]


def test_an_ignored_failure_does_not_count(world: World, process: Process) -> None:
    """Whatever backoffLimit is; its trainer is replaced after the usual delay."""
    _add_job(world, backoffLimit=0, podFailurePolicy={"rules": [_rule("Ignore", 42)]})
    process.run(3)
    _fail(world, world.running("net")[0], 42)
    process.run(5)
    meanwhile = len(world.running("net"))
    process.run(10)

    assert (meanwhile, len(world.running("net"))) == (1, 2)
    assert _ends(world) == []
    assert world.job("net").status.failed == 0


def test_one_failure_can_fail_the_job(world: World, process: Process) -> None:
    """Even if its pod is gone when the reconciler looks."""
    rules = [_rule("Ignore", 7), _rule("FailJob", 42)]
    _add_job(world, podFailurePolicy={"rules": rules})
    process.run(3)
    first = world.running("net")[0]
    _fail(world, first, 42)
    world.remove(first)
    process.run(4)

    reason = "PodFailurePolicy"
    assert _ends(world) == [("FailureTarget", reason), ("Failed", reason)]
    condition = world.job("net").status.conditions[-1]
    assert "exit code 42 matching FailJob rule at index 1" in condition.message
