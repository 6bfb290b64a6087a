"""What holds for every single plan, whatever the cluster and the policy."""

from collections import Counter
from datetime import UTC, datetime
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from policy import amounts, ceilings
from policy.crew import is_surplus
from policy.elasticity import plan
from policy.index import Index
from policy.names import Tier
from policy.planning import Plan
from policy.reasons import Reason
from policy.snapshot import Snapshot
from tests.support import rich
from tests.support.builders import NOW_S
from tests.support.strategies import CALM, Case

_TO_SHARE = (Reason.FAIR_SHARE, Reason.RESERVE_RESTORED, Reason.QUOTA_REACHED)


def _plan(case: Case) -> tuple[Index, Plan]:
    index = Index.of(case.snapshot)
    return index, plan(index, case.policy, NOW_S)


@CALM
@given(rich.cases(plain=True), st.randoms(use_true_random=False))
def test_order_changes_nothing(case: Case, random: Random) -> None:
    """Nodes, pods and jobs may come in any order: the plan is the same."""
    found = case.snapshot
    shuffled = Snapshot(
        nodes=tuple(random.sample(found.nodes, len(found.nodes))),
        pods=tuple(random.sample(found.pods, len(found.pods))),
        jobs=tuple(random.sample(found.jobs, len(found.jobs))),
    )

    assert plan(Index.of(shuffled), case.policy, NOW_S) == _plan(case)[1]


@CALM
@given(rich.spoiled())
def test_bad_input_is_planned_around(case: Case) -> None:
    """Odd nodes, pods and jobs: a plan with a reason for every job, and no exception."""
    index, made = _plan(case)

    assert {wanted.key for wanted in made.jobs} == set(index.jobs)
    assert all(wanted.target >= 0 and wanted.reason for wanted in made.jobs)
    assert all(create.count > 0 for create in made.creates)
    for wanted in made.jobs:
        if index.jobs[wanted.key].error:
            assert wanted.reason is Reason.INVALID
            assert not [c for c in made.creates if c.job == wanted.key]


@CALM
@given(rich.cases())
def test_surplus_fits_into_what_is_free(case: Case) -> None:
    """New surplus of each job fits, node by node, in whole slots and so in whole devices."""
    index, made = _plan(case)

    for create in made.creates:
        if create.tier is Tier.SURPLUS:
            owner = index.jobs[create.job]
            usable = index.open_nodes(owner.constraints, case.policy.node_pools)
            slots = sum(amounts.times(owner.requests, index.free(n)) for n in usable)
            assert create.count <= slots


@CALM
@given(rich.cases())
def test_growth_respects_every_load_limit(case: Case) -> None:
    """Surplus is added only below reserve, headroom and window of each resource it takes."""
    index, made = _plan(case)
    used = dict(index.total_used())
    grown: set[str] = set()
    for create in made.creates:
        requests = index.jobs[create.job].requests
        for _ in range(create.count if create.tier is Tier.SURPLUS else 0):
            amounts.add(used, requests)
            grown |= {name for name, amount in requests.items() if amount > 0}

    limits = ceilings.load_limits(case.policy, index.allocatable, _now())
    assert all(used.get(name, 0) <= most for name, most in limits.items() if name in grown)


@CALM
@given(rich.cases(plain=True))
def test_growth_respects_quotas_and_sizes(case: Case) -> None:
    """A job that grew is inside its quotas, and of an allowed size."""
    index, made = _plan(case)
    left = ceilings.Quotas(case.policy, index)
    created = {create.job for create in made.creates}
    for wanted in made.jobs:
        left.take(
            index.jobs[wanted.key], wanted.target - len(index.trainers(index.jobs[wanted.key]))
        )

    for wanted in made.jobs:
        owner = index.jobs[wanted.key]
        if wanted.key in created and owner.managed:
            assert not left.exceeded(owner)
        surplus = [c for c in made.creates if c.job == wanted.key and c.tier is Tier.SURPLUS]
        if surplus and not [r for r in made.releases if r.job == wanted.key]:
            assert ceilings.floor_size(case.policy, owner, wanted.target) == wanted.target


@CALM
@given(rich.cases(plain=True))
def test_nobody_falls_below_min_to_share(case: Case) -> None:
    """Reserve, quota and fairness end surplus only, and never take a job below its minimum.

    What was withdrawn because no node had room for it was of no use to the job.
    """
    index, made = _plan(case)
    left = Counter({wanted.key: wanted.target for wanted in made.jobs})
    left.update(r.job for r in made.releases if r.reason is Reason.NOT_SCHEDULED)

    for release in made.releases:
        if release.reason in _TO_SHARE:
            owner = index.jobs[release.job]
            assert left[release.job] >= owner.min_trainers
            pod = next(p for p in index.trainers(owner) if p.uid == release.uid)
            assert is_surplus(pod)


@CALM
@given(rich.cases())
def test_gpus_of_another_type_are_no_room(case: Case) -> None:
    """A job that can use none of the free devices gets none and is told why."""
    index, made = _plan(case)
    for wanted in made.jobs:
        owner = index.jobs[wanted.key]
        usable = index.open_nodes(owner.constraints, case.policy.node_pools)
        if not any(amounts.within(owner.requests, index.nodes[n].allocatable) for n in usable):
            assert not [c for c in made.creates if c.job == wanted.key]
            if wanted.target < owner.min_trainers and not owner.suspended:
                assert wanted.reason in (Reason.FITS_NO_NODE, Reason.QUOTA_REACHED, Reason.ENDING)


def _now() -> datetime:
    return datetime.fromtimestamp(NOW_S, UTC)
