"""When journeys take a cluster for settled."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.settling import Ticks, unsettled
from policy.cluster.snapshot import Snapshot
from policy.document.model import Policy, Reserve
from policy.planning import snapshot_file
from policy.planning.plan import History
from policy.planning.plan_input import PlanInput
from policy.planning.snapshot_file import SnapshotFile
from runtime import clock
from tests.support.builders import NOW_S, job, node, service, trainers

JOB = job("digits", 2, 2)
SETTLED = PlanInput(NOW_S, Snapshot((node("n0"),), tuple(trainers(JOB, ["n0", "n0"])), (JOB,)))


def _of(plan_input: PlanInput) -> str:
    return unsettled(plan_input, Policy(), {JOB.key}, 0)


def test_a_cluster_has_settled_when_a_plan_has_nothing_to_do() -> None:
    """Now, and after all delays: a job that will grow once a node has cooled down still moves."""
    growing = replace(SETTLED.snapshot, jobs=(replace(JOB, max_trainers=3),))
    cooling = History(cooling={"n0": NOW_S + 60.0})
    waits = replace(SETTLED, snapshot=growing, history=cooling)

    assert _of(SETTLED) == ""
    assert waits.plan().empty
    assert _of(waits) == _of(replace(SETTLED, snapshot=growing)) == "a plan has something to do"


@pytest.mark.parametrize(
    ("change", "obstacle"),
    [
        ({"jobs": ()}, "jobs have not come"),
        ({"jobs": (replace(JOB, unprobed=True),)}, "a job is being checked"),
        ({"pods": ()}, "a plan has something to do"),
        ({"pods": (service("web", where="n0"),)}, "services have not come"),
        ({"pods": tuple(trainers(JOB, ["n0", ""]))}, "pods do not run: ml/digits-trainer-1"),
        (
            {"pods": tuple(replace(pod, deleting=True) for pod in trainers(JOB, ["n0"]))},
            "pods do not run: ml/digits-trainer-0",
        ),
    ],
)
def test_what_is_missing_is_named(change: dict[str, Any], obstacle: str) -> None:
    """Jobs, services, pods that do not run or still leave, and a job that is not yet checked."""
    assert _of(replace(SETTLED, snapshot=replace(SETTLED.snapshot, **change))) == obstacle


def test_a_policy_that_is_not_in_force_yet_has_settled_nothing() -> None:
    """However quiet the cluster is."""
    other = Policy(reserve=Reserve(max_load={"cpu": 0.5}))
    assert unsettled(SETTLED, other, {JOB.key}, 0) == "the policy is not in force"


def test_only_plans_from_after_the_call_count(tmp_path: Path) -> None:
    """The newest file counts; an earlier plan says nothing about what has just been sent, nor half a file."""
    ticks = Ticks(tmp_path)
    arguments = (Policy(), {JOB.key}, 0)
    assert ticks.newest() is None
    assert ticks.settle(*arguments, within_s=0.01) == "no plan was made"
    text = snapshot_file.dumps(SnapshotFile(SETTLED))
    (tmp_path / "tick-00000.json").write_bytes(text)
    assert ticks.newest() == SETTLED
    assert ticks.settle(*arguments, within_s=0.01) == "no plan was made"
    (tmp_path / "tick-00000.json").write_bytes(text[:100])
    assert ticks.newest() is None
    later = replace(SETTLED, at_s=clock.epoch_s() + 60.0)
    (tmp_path / "tick-00000.json").write_bytes(snapshot_file.dumps(SnapshotFile(later)))
    assert ticks.settle(*arguments, within_s=10.0) == ""
