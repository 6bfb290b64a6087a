"""Which new surplus kube-scheduler spares longer, where it chooses victims by priorities alone."""

import pytest

from policy.cluster.snapshot import Job
from policy.document.model import Fairness, FairnessBy, Policy, Reserve
from policy.names import CLASS_GUARANTEED, CLASS_LOW_SHARE, CLASS_SURPLUS, Tier
from policy.planning.plan import History, Plan
from policy.planning.planner import plan
from policy.scheduling import UNMARKED, Scheduling
from tests.support.builders import NOW_S, cluster_state, job, node, trainer

_NO_RESERVE = Reserve(max_load={})


def _plan(
    *jobs: tuple[Job, int],
    places: int,
    scheduling: Scheduling = UNMARKED,
    by: FairnessBy = FairnessBy.DOMINANT_SHARE,
) -> Plan:
    """A plan for jobs with so many trainers, and free nodes for so many more."""
    pods = [
        trainer(
            owner,
            number,
            f"{owner.name}-{number}",
            Tier.GUARANTEED if number < owner.min_trainers else Tier.SURPLUS,
        )
        for owner, count in jobs
        for number in range(count)
    ]
    names = [*(pod.node for pod in pods), *(f"free-{number}" for number in range(places))]
    state = cluster_state([node(name, 5) for name in names], [owner for owner, _ in jobs], pods)
    policy = Policy(reserve=_NO_RESERVE, fairness=Fairness(by=by))
    return plan(state, policy, NOW_S, History(scheduling=scheduling))


def _classes(new_plan: Plan) -> dict[str, str]:
    """Job -> priority class of its new trainers."""
    return {create.job: create.priority_class for create in new_plan.creates}


@pytest.mark.parametrize(("places", "priority_class"), [(3, CLASS_LOW_SHARE), (4, CLASS_SURPLUS)])
def test_surplus_up_to_half_of_the_largest_share_is_spared(
    places: int, priority_class: str
) -> None:
    """With five trainers beside the eleven that a move leaves the other, not with six."""
    new_plan = _plan((job("rich", 2, 30), 12), (job("poor", 2, 30), 2), places=places)

    assert _classes(new_plan) == {"ml/poor": priority_class}


def test_a_job_alone_and_the_richest_one_have_ordinary_surplus() -> None:
    """Nobody has more; of two equal jobs neither has little."""
    alone = _plan((job("net", 2, 30), 2), places=4)
    equal = _plan((job("one", 2, 30), 2), (job("two", 2, 30), 2), places=4)

    assert _classes(alone) == {"ml/net": CLASS_SURPLUS}
    assert _classes(equal) == {"ml/one": CLASS_SURPLUS, "ml/two": CLASS_SURPLUS}


def test_guaranteed_trainers_have_their_own_class() -> None:
    """However little their job has."""
    new_plan = _plan((job("rich", 2, 30), 12), (job("new", 2, 30), 0), places=2)

    assert _classes(new_plan) == {"ml/new": CLASS_GUARANTEED}


def test_the_extender_knows_the_shares() -> None:
    """Where kube-scheduler asks it, all surplus has one class."""
    jobs = (job("rich", 2, 30), 12), (job("poor", 2, 30), 2)
    new_plan = _plan(*jobs, places=4, scheduling=Scheduling(marked=True))

    assert _classes(new_plan) == {"ml/poor": CLASS_SURPLUS}


def test_what_is_little_is_measured_as_fairness_is() -> None:
    """By fulfilment a job with a quarter of the other's trainers may have as much of what it may have."""
    jobs = (job("large", 2, 34), 18), (job("small", 2, 6), 2)

    assert _classes(_plan(*jobs, places=2)) == {"ml/small": CLASS_LOW_SHARE}
    by_fulfilment = _plan(*jobs, places=2, by=FairnessBy.FULFILMENT)
    assert _classes(by_fulfilment) == {"ml/small": CLASS_SURPLUS}
