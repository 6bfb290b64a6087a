"""What holds for every single plan, whatever the cluster and the policy."""

from collections import Counter
from datetime import UTC, datetime
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.live_trainers import is_surplus
from policy.cluster.snapshot import Snapshot
from policy.names import Tier
from policy.planning import sizes
from policy.planning.load import load_limits
from policy.planning.plan import Plan
from policy.planning.planner import plan
from policy.planning.quotas import Quotas
from policy.reasons import Reason
from tests.support import rich
from tests.support.builders import NOW_S
from tests.support.strategies import CALM, Case

_TO_SHARE = (Reason.FAIR_SHARE, Reason.RESERVE_RESTORED, Reason.QUOTA_REACHED)


def _plan(case: Case) -> tuple[ClusterState, Plan]:
    cluster = ClusterState.of(case.snapshot)
    return cluster, plan(cluster, case.policy, NOW_S)


@CALM
@given(rich.cases(plain=True), st.randoms(use_true_random=False))
def test_order_changes_nothing(case: Case, random: Random) -> None:
    """Nodes, pods and jobs may come in any order: the plan is the same."""
    snapshot = case.snapshot
    shuffled = Snapshot(
        nodes=tuple(random.sample(snapshot.nodes, len(snapshot.nodes))),
        pods=tuple(random.sample(snapshot.pods, len(snapshot.pods))),
        jobs=tuple(random.sample(snapshot.jobs, len(snapshot.jobs))),
    )

    assert plan(ClusterState.of(shuffled), case.policy, NOW_S) == _plan(case)[1]


@CALM
@given(rich.with_odd_records())
def test_bad_input_is_planned_around(case: Case) -> None:
    """Odd nodes, pods and jobs: a plan with a reason for every job, and no exception."""
    cluster, new_plan = _plan(case)

    assert {job_plan.key for job_plan in new_plan.jobs} == set(cluster.jobs)
    assert all(job_plan.target >= 0 and job_plan.reason for job_plan in new_plan.jobs)
    assert all(create.count > 0 for create in new_plan.creates)
    for job_plan in new_plan.jobs:
        if cluster.jobs[job_plan.key].error:
            assert job_plan.reason is Reason.INVALID
            assert not [c for c in new_plan.creates if c.job == job_plan.key]


@CALM
@given(rich.cases())
def test_surplus_fits_into_what_is_free(case: Case) -> None:
    """New surplus of each job fits, node by node, in whole slots and so in whole devices."""
    cluster, new_plan = _plan(case)

    for create in new_plan.creates:
        if create.tier is Tier.SURPLUS:
            owner = cluster.jobs[create.job]
            usable = cluster.open_nodes(owner.constraints, case.policy.node_pools)
            slots = sum(amounts.times(owner.requests, cluster.free(n)) for n in usable)
            assert create.count <= slots


@CALM
@given(rich.cases())
def test_growth_respects_every_load_limit(case: Case) -> None:
    """Surplus is added only below reserve, headroom and window of each resource it takes."""
    cluster, new_plan = _plan(case)
    usable = cluster.usable(case.policy.node_pools)
    used = dict(usable.in_use)
    grown: set[str] = set()
    for create in new_plan.creates:
        requests = cluster.jobs[create.job].requests
        for _ in range(create.count if create.tier is Tier.SURPLUS else 0):
            amounts.add(used, requests)
            grown |= {name for name, amount in requests.items() if amount > 0}

    limits = load_limits(case.policy, usable.allocatable, _now())
    assert all(used.get(name, 0) <= most for name, most in limits.items() if name in grown)


@CALM
@given(rich.cases(plain=True))
def test_growth_respects_quotas_and_sizes(case: Case) -> None:
    """A job that grew is inside its quotas, and of an allowed size."""
    cluster, new_plan = _plan(case)
    quotas = Quotas(case.policy, cluster)
    created = {create.job for create in new_plan.creates}
    for job_plan in new_plan.jobs:
        quotas.reserve(
            cluster.jobs[job_plan.key],
            job_plan.target - len(cluster.trainers(cluster.jobs[job_plan.key])),
        )

    for job_plan in new_plan.jobs:
        owner = cluster.jobs[job_plan.key]
        if job_plan.key in created and owner.managed:
            assert not quotas.exceeded(owner)
        surplus = [c for c in new_plan.creates if c.job == job_plan.key and c.tier is Tier.SURPLUS]
        if surplus and not [r for r in new_plan.releases if r.job == job_plan.key]:
            assert sizes.floor_size(case.policy, owner, job_plan.target) == job_plan.target


@CALM
@given(rich.cases(plain=True))
def test_nobody_falls_below_min_to_share(case: Case) -> None:
    """Reserve, quota and fairness end surplus only, and never take a job below its minimum.

    What was withdrawn because no node had room for it was of no use to the job.
    """
    cluster, new_plan = _plan(case)
    counts = Counter({job_plan.key: job_plan.target for job_plan in new_plan.jobs})
    counts.update(r.job for r in new_plan.releases if r.reason is Reason.NOT_SCHEDULED)

    for release in new_plan.releases:
        if release.reason in _TO_SHARE:
            owner = cluster.jobs[release.job]
            assert counts[release.job] >= owner.min_trainers
            pod = next(p for p in cluster.trainers(owner) if p.uid == release.uid)
            assert is_surplus(pod)


@CALM
@given(rich.cases())
def test_gpus_of_another_type_are_no_room(case: Case) -> None:
    """A job that can use none of the free devices gets none, with a reason."""
    cluster, new_plan = _plan(case)
    for job_plan in new_plan.jobs:
        owner = cluster.jobs[job_plan.key]
        usable = cluster.open_nodes(owner.constraints, case.policy.node_pools)
        if not any(amounts.within(owner.requests, cluster.nodes[n].allocatable) for n in usable):
            assert not [c for c in new_plan.creates if c.job == job_plan.key]
            if job_plan.target < owner.min_trainers and not owner.suspended:
                assert job_plan.reason in (Reason.FITS_NO_NODE, Reason.QUOTA_REACHED, Reason.ENDING)


def _now() -> datetime:
    return datetime.fromtimestamp(NOW_S, UTC)
