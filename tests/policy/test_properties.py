from dataclasses import replace
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from policy import amounts, ceilings
from policy.crew import is_surplus
from policy.elasticity import plan
from policy.index import Index
from policy.model import Policy, Reserve, Stability
from policy.names import Tier
from policy.planning import Plan
from policy.reasons import Reason
from policy.snapshot import Snapshot
from tests.support.builders import NOW_S, job, node, trainers
from tests.support.simulate import Cluster
from tests.support.strategies import CALM, Case, cases

_ROUNDS = 120
"""More than any of these small clusters needs to come to rest."""


def _plan(case: Case) -> tuple[Index, Plan]:
    index = Index.of(case.snapshot)
    return index, plan(index, case.policy, NOW_S)


def _cluster(case: Case) -> Cluster:
    return Cluster(case.snapshot.nodes, case.snapshot.jobs, case.snapshot.pods)


@CALM
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(case: Case, random: Random) -> None:
    """Nodes, pods and jobs may come in any order: the plan is the same."""
    found = case.snapshot
    shuffled = Snapshot(
        nodes=tuple(random.sample(found.nodes, len(found.nodes))),
        pods=tuple(random.sample(found.pods, len(found.pods))),
        jobs=tuple(random.sample(found.jobs, len(found.jobs))),
    )

    assert plan(Index.of(shuffled), case.policy, NOW_S) == _plan(case)[1]


@CALM
@given(cases())
def test_a_plan_changes_nothing_it_reads(case: Case) -> None:
    """The index after a plan is the index before it."""
    index, _ = _plan(case)
    fresh = Index.of(case.snapshot)

    assert (index.used, index.bound, index.allocatable) == (
        fresh.used,
        fresh.bound,
        fresh.allocatable,
    )


@CALM
@given(cases())
def test_surplus_is_made_only_where_whole_slots_are_free(case: Case) -> None:
    """All surplus creations, and surplus that waits, fit into the room that is free now."""
    index, made = _plan(case)
    wanted = {c.job: c.count for c in made.creates if c.tier is Tier.SURPLUS}

    for key, count in wanted.items():
        slots = sum(amounts.times(index.jobs[key].requests, index.free(n)) for n in index.nodes)
        assert count <= slots
    need: dict[str, int] = {}
    for key, count in wanted.items():
        for _ in range(count):
            amounts.add(need, index.jobs[key].requests)
    free: dict[str, int] = {}
    for name in index.nodes:
        amounts.add(free, {n: max(0, a) for n, a in index.free(name).items()})
    assert amounts.within(need, free)


@CALM
@given(cases())
def test_surplus_respects_the_reserve(case: Case) -> None:
    """Nothing is added above the load limit of any resource."""
    index, made = _plan(case)
    used = index.total_used()
    grown = False
    for create in made.creates:
        grown = grown or create.tier is Tier.SURPLUS
        for _ in range(create.count if create.tier is Tier.SURPLUS else 0):
            amounts.add(used, index.jobs[create.job].requests)

    limit = case.policy.reserve.max_load["cpu"] * index.allocatable["cpu"]
    assert not grown or used["cpu"] <= limit


@CALM
@given(cases())
def test_no_job_is_planned_above_its_ceilings(case: Case) -> None:
    """Above max, no target; above a quota, no creation.

    Guaranteed trainers on cordoned nodes are on top while their replacements are made.
    """
    index, made = _plan(case)
    created = {c.job for c in made.creates}
    left = ceilings.Quotas(case.policy, index)
    for wanted in made.jobs:
        owner = index.jobs[wanted.key]
        left.take(owner, wanted.target - wanted.live)
        stranded = sum(
            1
            for pod in index.trainers(owner)
            if pod.tier is Tier.GUARANTEED
            and pod.node in index.nodes
            and index.nodes[pod.node].unschedulable
        )
        assert wanted.target <= owner.max_trainers + stranded
        assert wanted.target >= 0
    for key in created:
        assert not left.exceeded(index.jobs[key])


@CALM
@given(cases())
def test_guaranteed_trainers_are_never_released_to_share(case: Case) -> None:
    """Only a stop, or a max below what is there, ends a guaranteed trainer."""
    index, made = _plan(case)

    for release in made.releases:
        if not is_surplus(index.pods[release.uid]):
            assert release.reason in (Reason.JOB_STOPPED, Reason.ABOVE_MAX)


@CALM
@given(cases())
def test_a_plan_applied_again_and_again_comes_to_rest(case: Case) -> None:
    """Without change from outside the plan becomes empty within a few rounds and stays so."""
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
        index = cluster.index()
        assert all(amount >= 0 for n in index.nodes for amount in index.free(n).values())


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
    index = cluster.index()

    for wanted in cluster.plan(case.policy).jobs:
        owner = index.jobs[wanted.key]
        if wanted.reason is Reason.WAITING_FOR_ROOM:
            assert _slots_without_surplus(cluster, owner.key) < owner.min_trainers
        elif wanted.reason not in (Reason.FITS_NO_NODE, Reason.SUSPENDED, Reason.QUOTA_REACHED):
            assert wanted.target >= owner.min_trainers


def _slots_without_surplus(cluster: Cluster, key: str) -> int:
    """How many trainers of a job there are, and could be made if all surplus went away."""
    index = cluster.index()
    owner = index.jobs[key]
    slots = sum(not is_surplus(pod) for pod in index.trainers(owner))
    for pod in [p for p in index.pods.values() if is_surplus(p)]:
        index.drop_pod(pod.uid)
    for name, place in index.nodes.items():
        if place.ready and not place.unschedulable:
            slots += amounts.times(owner.requests, index.free(name))
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
    """From any split of a full cluster, trainers move one way until the shares are alike."""
    a, b = job("a", 1, 12), job("b", 1, 12)
    places = [f"n{i % 6}" for i in range(12)]
    held = places[: min(first, 11)]
    pods = [*trainers(a, held), *trainers(b, places[len(held) :][:second])]
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
                found = next(p for p in case.snapshot.pods if p.uid == uid)
                cluster.pods[uid] = replace(found, node="", deleting=False)
            else:
                cluster.pods[uid] = replace(pod, deleting=True)
        cluster.round(case.policy)

    cluster.settle(case.policy, _ROUNDS)
