"""`podReplacementPolicy: Failed`: trainers count against max until they have ended."""

from dataclasses import replace

from policy.cluster.snapshot import Job, Phase, Pod
from policy.document.model import Policy, Reserve
from policy.planning.plan import Plan
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import NOW_S, cluster_state, job, node, trainers

_FREE = Policy(reserve=Reserve(max_load={}))
_PATIENT = job("net", 1, 3, replaces_ended=True)


def _plan(owner: Job, pods: list[Pod]) -> Plan:
    return plan(cluster_state([node("n0", 60)], [owner], pods), _FREE, NOW_S)


def _created(new_plan: Plan) -> int:
    return sum(create.count for create in new_plan.creates)


def _one_leaving(owner: Job) -> list[Pod]:
    first, *others = trainers(owner, ["n0"] * 3)
    return [replace(first, deleting=True), *others]


def test_a_trainer_in_terminating_counts_against_max() -> None:
    """Its replacement is created when it has ended, and until then the job's reason says so."""
    leaving = _one_leaving(_PATIENT)
    waits = _plan(_PATIENT, leaving)
    ended = _plan(_PATIENT, [replace(leaving[0], phase=Phase.FAILED), *leaving[1:]])

    assert (_created(waits), _created(ended)) == (0, 1)
    assert waits.jobs[0].reason is Reason.REPLACING
    assert waits.jobs[0].detail == (
        "podReplacementPolicy is Failed: waiting for 1 terminating trainer to end"
    )


def test_below_max_a_job_grows_past_those_that_leave() -> None:
    """Only the number of pods is bounded, not which of them is new."""
    owner = replace(_PATIENT, max_trainers=4)

    assert _created(_plan(owner, _one_leaving(owner))) == 1


def test_surplus_waits_too() -> None:
    """The minimum is there, and one surplus trainer is on its way out."""
    guaranteed, leaving, surplus = trainers(_PATIENT, ["n0"] * 3)
    new_plan = _plan(_PATIENT, [guaranteed, replace(leaving, deleting=True), surplus])

    assert _created(new_plan) == 0
    assert new_plan.jobs[0].reason is Reason.REPLACING


def test_other_jobs_replace_at_once() -> None:
    """TerminatingOrFailed, the default: a trainer that leaves no longer counts."""
    owner = replace(_PATIENT, replaces_ended=False)

    assert _created(_plan(owner, _one_leaving(owner))) == 1


def test_a_drain_is_not_held_up() -> None:
    """The budget lets a stranded guaranteed trainer go only when its replacement runs."""
    owner = job("net", 2, 2, replaces_ended=True)
    nodes = [node("n0", 60, unschedulable=True), node("n1", 60)]
    pods = trainers(owner, ["n0", "n1"])
    new_plan = plan(cluster_state(nodes, [owner], pods), _FREE, NOW_S)

    assert _created(new_plan) == 1
