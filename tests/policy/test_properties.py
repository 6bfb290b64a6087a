from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.live_trainers import is_surplus
from policy.document.model import Policy, Reserve, Stability
from policy.names import Tier
from policy.planning.plan import Plan
from policy.planning.planner import plan
from policy.planning.quotas import Quotas
from policy.reasons import Reason
from tests.support.builders import NOW_S, job, node, trainers
from tests.support.simulate import Cluster
from tests.support.strategies import CALM, Case, cases

_ROUNDS = 120
"""More than any of these small clusters needs to come to rest."""


def _plan(case: Case) -> tuple[ClusterState, Plan]:
    state = ClusterState.of(case.snapshot)
    return state, plan(state, case.policy, NOW_S)


def _cluster(case: Case) -> Cluster:
    return Cluster(case.snapshot.nodes, case.snapshot.jobs, case.snapshot.pods)


@CALM
@given(cases())
def test_a_plan_changes_nothing_it_reads(case: Case) -> None:
    """A plan does not change the state."""
    state, _ = _plan(case)
    fresh = ClusterState.of(case.snapshot)

    assert (state.used, state.bound, state.allocatable) == (
        fresh.used,
        fresh.bound,
        fresh.allocatable,
    )


@CALM
@given(cases())
def test_surplus_is_made_only_where_whole_slots_are_free(case: Case) -> None:
    """All surplus creations, and surplus that waits, fit into the room that is free now."""
    state, new_plan = _plan(case)
    surplus_counts = {c.job: c.count for c in new_plan.creates if c.tier is Tier.SURPLUS}

    for key, count in surplus_counts.items():
        slots = sum(amounts.times(state.jobs[key].requests, state.free(n)) for n in state.nodes)
        assert count <= slots
    need: dict[str, int] = {}
    for key, count in surplus_counts.items():
        for _ in range(count):
            amounts.add(need, state.jobs[key].requests)
    free: dict[str, int] = {}
    for name in state.nodes:
        amounts.add(free, {n: max(0, a) for n, a in state.free(name).items()})
    assert amounts.within(need, free)


@CALM
@given(cases())
def test_surplus_respects_the_reserve(case: Case) -> None:
    """Nothing is added above the load limit of any resource."""
    state, new_plan = _plan(case)
    usable = state.usable(case.policy.node_pools)
    used = dict(usable.in_use)
    grown = False
    for create in new_plan.creates:
        grown = grown or create.tier is Tier.SURPLUS
        for _ in range(create.count if create.tier is Tier.SURPLUS else 0):
            amounts.add(used, state.jobs[create.job].requests)

    limit = case.policy.reserve.max_load["cpu"] * usable.allocatable.get("cpu", 0)
    assert not grown or used["cpu"] <= limit


@CALM
@given(cases())
def test_no_job_is_planned_above_its_ceilings(case: Case) -> None:
    """Above max, no target; above a quota, no creation.

    Guaranteed trainers on cordoned nodes are on top while their replacements are made.
    """
    state, new_plan = _plan(case)
    created = {c.job for c in new_plan.creates}
    quotas = Quotas(case.policy, state)
    for job_plan in new_plan.jobs:
        owner = state.jobs[job_plan.key]
        quotas.reserve(owner, job_plan.target - job_plan.live)
        stranded = sum(
            1
            for pod in state.trainers(owner)
            if pod.tier is Tier.GUARANTEED
            and pod.node in state.nodes
            and state.nodes[pod.node].unschedulable
        )
        assert job_plan.target <= owner.max_trainers + stranded
        assert job_plan.target >= 0
    for key in created:
        assert not quotas.exceeded(state.jobs[key])


@CALM
@given(cases())
def test_guaranteed_trainers_are_never_released_to_share(case: Case) -> None:
    """Only a stop, or a max below what is there, ends a guaranteed trainer."""
    state, new_plan = _plan(case)

    for release in new_plan.releases:
        if not is_surplus(state.pods[release.uid]):
            assert release.reason in (Reason.JOB_STOPPED, Reason.ABOVE_MAX)


@CALM
@given(cases())
def test_a_plan_applied_again_and_again_comes_to_rest(case: Case) -> None:
    """Without change from outside the plan becomes empty within a few cycles and stays so."""
    cluster = _cluster(case)
    cluster.settle(case.policy, _ROUNDS)

    for _ in range(3):
        assert cluster.round(case.policy).empty


@CALM
@given(cases())
def test_nodes_are_never_overfull(case: Case) -> None:
    """Whatever is planned, what runs on a node fits on it."""
    cluster = _cluster(case)
    for _ in range(12):
        cluster.round(case.policy)
        state = cluster.state()
        assert all(amount >= 0 for n in state.nodes for amount in state.free(n).values())


@CALM
@given(cases())
def test_trainers_stopped_under_static_input_are_bounded(case: Case) -> None:
    """No two jobs take from each other in turns: few more are stopped than there ever were."""
    cluster = _cluster(case)
    cluster.settle(case.policy, _ROUNDS)
    before = len(case.snapshot.pods)

    assert cluster.stopped <= before + sum(j.max_trainers for j in case.snapshot.jobs)


@CALM
@given(cases())
def test_nobody_is_below_min_while_surplus_holds_its_room(case: Case) -> None:
    """At rest, a job that waits for its minimum could not start even if all surplus went."""
    cluster = _cluster(case)
    cluster.settle(case.policy, _ROUNDS)
    state = cluster.state()

    for job_plan in cluster.plan(case.policy).jobs:
        owner = state.jobs[job_plan.key]
        if job_plan.reason is Reason.WAITING_FOR_ROOM:
            assert _slots_without_surplus(cluster, owner.key) < owner.min_trainers
        elif job_plan.reason not in (Reason.FITS_NO_NODE, Reason.SUSPENDED, Reason.QUOTA_REACHED):
            assert job_plan.target >= owner.min_trainers


def _slots_without_surplus(cluster: Cluster, key: str) -> int:
    """How many trainers of a job there are, and could be made if all surplus went away."""
    state = cluster.state()
    owner = state.jobs[key]
    slots = sum(not is_surplus(pod) for pod in state.trainers(owner))
    for pod in [p for p in state.pods.values() if is_surplus(p)]:
        state.drop_pod(pod.uid)
    for name, place in state.nodes.items():
        if place.ready and not place.unschedulable:
            slots += amounts.times(owner.requests, state.free(name))
    return slots


@CALM
@given(cases(), st.integers(5, 20))
def test_a_node_more_starves_nobody(case: Case, cpu: int) -> None:
    """With more capacity no job that had its minimum loses it, and trainers become no fewer."""
    small = _cluster(case)
    small.settle(case.policy, _ROUNDS)
    before = small.counts()

    small.nodes = (*small.nodes, node("new", cpu))
    small.settle(case.policy, _ROUNDS)

    after = small.counts()
    for key, owner in small.jobs.items():
        assert after[key] >= min(before[key], owner.min_trainers)


@CALM
@given(st.integers(1, 12), st.integers(1, 12))
def test_two_jobs_never_take_from_each_other_in_turns(first: int, second: int) -> None:
    """From any split of a full cluster, trainers move one way until the shares are equal."""
    a, b = job("a", 1, 12), job("b", 1, 12)
    places = [f"n{i % 6}" for i in range(12)]
    occupied = places[: min(first, 11)]
    pods = [*trainers(a, occupied), *trainers(b, places[len(occupied) :][:second])]
    policy = Policy(reserve=Reserve(max_load={"cpu": 1.0}), stability=Stability(max_moves=1.0))
    cluster = Cluster([node(f"n{i}", 10) for i in range(6)], [a, b], pods)
    counts = [cluster.counts()]
    while len(counts) < 12:
        cluster.round(policy)
        counts.append(cluster.counts())

    assert sorted(counts[-1].values()) == [6, 6]
    poorer = min(counts[0], key=lambda key: (counts[0][key], key))
    assert all(before[poorer] <= after[poorer] for before, after in pairwise(counts))


@CALM
@given(cases(), st.lists(st.integers(0, 3), max_size=40))
def test_churn_never_makes_trainers_go_round(case: Case, changes: list[int]) -> None:
    """Services come and go at random; afterwards the cluster comes to rest all the same."""
    cluster = _cluster(case)
    services = [uid for uid, pod in cluster.pods.items() if not pod.is_training]
    for change in changes:
        if change < len(services):
            uid = services[change]
            pod = cluster.pods.get(uid)
            if pod is None:
                victim = next(p for p in case.snapshot.pods if p.uid == uid)
                cluster.pods[uid] = replace(victim, node="", deleting=False)
            else:
                cluster.pods[uid] = replace(pod, deleting=True)
        cluster.round(case.policy)

    cluster.settle(case.policy, _ROUNDS)
