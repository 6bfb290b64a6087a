"""What holds when plans are carried out cycle by cycle until nothing changes any more.

Carried out means `tests.support.simulate`: each cycle plans, applies the plan at once, lets an
ideal kube-scheduler bind and preempt, and ends what was leaving; 30 s pass.
"""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.live_trainers import is_surplus
from policy.cluster.snapshot import Job
from policy.document.model import Policy
from policy.planning import sizes
from policy.planning.load import Load, load_limits
from policy.planning.quotas import Quotas
from policy.reasons import Reason
from tests.support import rich
from tests.support.builders import NOW_S, job, node
from tests.support.simulate import Cluster
from tests.support.strategies import CALM, Case

_ROUNDS = 150
"""More than any of these small clusters needs to come to rest."""


def _cluster(case: Case) -> Cluster:
    return Cluster(case.snapshot.nodes, case.snapshot.jobs, case.snapshot.pods)


@CALM
@given(rich.cases())
def test_plans_come_to_rest(case: Case) -> None:
    """Applied and planned again: empty, and it stays so; few more are stopped than there were."""
    cluster = _cluster(case)
    cluster.settle(case.policy, _ROUNDS)
    for _ in range(3):
        assert cluster.round(case.policy).empty

    most = len(case.snapshot.pods) + sum(owner.max_trainers for owner in case.snapshot.jobs)
    assert cluster.stopped <= most


@CALM
@given(rich.cases())
def test_nodes_devices_and_quotas_hold(case: Case) -> None:
    """In every cycle what runs on a node fits it, whole devices included; quotas bind all growth."""
    cluster = _cluster(case)
    for _ in range(12):
        before = cluster.counts()
        cluster.round(case.policy)
        state = cluster.state()
        assert all(amount >= 0 for n in state.nodes for amount in state.free(n).values())
        quotas = Quotas(case.policy, state)
        for key, count in cluster.counts().items():
            assert count <= before[key] or not quotas.exceeded(state.jobs[key])


@CALM
@given(rich.cases())
def test_nobody_waits_for_min_while_surplus_holds_its_room(case: Case) -> None:
    """At rest, a job below its minimum could not start even if all surplus went."""
    cluster = _cluster(case)
    cluster.settle(case.policy, _ROUNDS)
    state = cluster.state()

    for job_plan in cluster.plan(case.policy).jobs:
        owner = state.jobs[job_plan.key]
        if job_plan.target >= owner.min_trainers:
            continue
        if job_plan.reason is Reason.WAITING_FOR_ROOM:
            assert _slots_without_surplus(cluster.state(), case, owner) < owner.min_trainers
        else:
            assert job_plan.reason in (
                Reason.FITS_NO_NODE,
                Reason.SUSPENDED,
                Reason.ENDING,
                Reason.QUOTA_REACHED,
            )


def _slots_without_surplus(state: ClusterState, case: Case, owner: Job) -> int:
    """How many trainers of a job there are, and could be made if all surplus went away."""
    slots = sum(not is_surplus(pod) for pod in state.trainers(owner))
    for pod in [p for p in state.pods.values() if is_surplus(p)]:
        state.drop_pod(pod.uid)
    usable = state.open_nodes(owner.constraints, case.policy.node_pools)
    return slots + sum(amounts.times(owner.requests, state.free(name)) for name in usable)


@CALM
@given(rich.cases())
def test_nothing_usable_is_left_over(case: Case) -> None:
    """At rest no job could have its next size: room, load and quota are used as far as they go."""
    cluster = _cluster(case)
    cluster.settle(case.policy, _ROUNDS)
    state, policy = cluster.state(), case.policy
    quotas = Quotas(policy, state)
    capacity = state.usable(policy.node_pools)
    limits = load_limits(policy, capacity.allocatable, datetime.fromtimestamp(NOW_S, UTC))
    load = Load(limits, capacity.in_use)
    waiting = {pod.job for pod in state.waiting.values() if pod.job}

    for job_plan in cluster.plan(policy).jobs:
        owner = state.jobs[job_plan.key]
        step = sizes.next_size(policy, owner, job_plan.target) - job_plan.target
        if job_plan.reason is not Reason.NO_ROOM or not step or waiting or state.waiting:
            continue
        if quotas.allow(owner, step) and load.allow(owner.requests, step):
            usable = state.open_nodes(owner.constraints, policy.node_pools)
            slots = sum(amounts.times(owner.requests, state.free(name)) for name in usable)
            assert slots < step


@CALM
@given(rich.cases(), st.integers(5, 20))
def test_more_capacity_costs_nobody_the_minimum(case: Case, cpu: int) -> None:
    """With one more node no job loses its minimum."""
    cluster = _cluster(case)
    cluster.settle(case.policy, _ROUNDS)
    before = cluster.counts()

    cluster.nodes = (*cluster.nodes, node("new", cpu))
    cluster.settle(case.policy, _ROUNDS)

    after = cluster.counts()
    for key, owner in cluster.jobs.items():
        assert after[key] >= min(before[key], owner.min_trainers)


@CALM
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=4),
    st.integers(1, 6),
)
def test_more_capacity_shrinks_no_share(bounds: list[tuple[int, int]], count: int) -> None:
    """Alike nodes and one shape: with a node more, no job has over one trainer fewer."""
    owners = [job(f"j{i}", low, 12, weight=weight) for i, (low, weight) in enumerate(bounds)]
    settled = []
    for nodes in (count, count + 1):
        cluster = Cluster([node(f"n{i}", 18) for i in range(nodes)], owners)
        cluster.settle(Policy(), _ROUNDS)
        settled.append(cluster.counts())

    small, large = settled
    assert all(large[key] >= small[key] - 1 for key in small)
    assert sum(large.values()) >= sum(small.values())
