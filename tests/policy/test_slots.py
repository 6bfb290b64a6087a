"""How many pods of a shape fit at most: known before a plan looks for places, and kept between plans."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.cluster import amounts, fits
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import ANYWHERE, Constraints, Job, Requirement, Resources
from policy.document.model import Policy, Reserve
from policy.document.queue_model import Quota
from policy.names import Tier
from policy.planning.book import Book
from policy.planning.free_capacity import FreeCapacity
from policy.planning.plan import History
from policy.planning.planner import plan
from policy.planning.quotas import Quotas
from policy.planning.rules import services
from policy.reasons import Reason
from tests.support.builders import (
    NOW_S,
    cluster_state,
    job,
    node,
    service,
    shape,
    trainer,
    trainers,
)
from tests.support.strategies import CALM, Case, cases, requests

_FREE = Policy(reserve=Reserve(max_load={}))
_N1 = Constraints(terms=((Requirement("metadata.name", "In", ("n1",)),),))


class _Work:
    """Counts what plans do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.divisions = 0
        self.reservations = 0
        monkeypatch.setattr(amounts, "times", self._times)
        reserve = FreeCapacity.reserve

        def counted(capacity: FreeCapacity, name: str, needs: Resources) -> None:
            self.reservations += 1
            reserve(capacity, name, needs)

        monkeypatch.setattr(FreeCapacity, "reserve", counted)

    def _times(self, needs: Resources, free: Resources) -> int:
        self.divisions += 1
        return min(free.get(name, 0) // amount for name, amount in needs.items())


def _huge(shapes: int) -> ClusterState:
    jobs = [job(f"j{n}", 10_000, 10_000, cpu=1 + n % shapes / 10) for n in range(40)]
    return cluster_state([node(f"n{n}", 32) for n in range(30)], jobs, [])


@pytest.mark.parametrize("shapes", [1, 40])
def test_minimums_that_cannot_start_reserve_nothing(
    monkeypatch: pytest.MonkeyPatch, shapes: int
) -> None:
    """Forty jobs of ten thousand trainers each were placed and taken back again in every plan."""
    cluster, work = _huge(shapes), _Work(monkeypatch)

    new_plan = plan(cluster, _FREE, NOW_S)

    assert {job_plan.reason for job_plan in new_plan.jobs} == {Reason.WAITING_FOR_ROOM}
    assert work.reservations == 0
    assert work.divisions <= 30 * shapes


def test_what_does_not_fit_is_remembered_until_a_node_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plan looks at the nodes that changed since, and not at all nodes for each shape."""
    cluster, work = _huge(40), _Work(monkeypatch)
    plan(cluster, _FREE, NOW_S)
    work.divisions = 0

    plan(cluster, _FREE, NOW_S + 1)
    assert work.divisions == 0

    cluster.put_pod(service("s", 1, "n3"))
    plan(cluster, _FREE, NOW_S + 2)
    assert work.divisions == 40


def test_the_figures_are_those_of_what_could_be_placed() -> None:
    """Also where the job has a quota that is smaller than the room."""
    waiting = job("a", 12, 12, cpu=5)
    quota = Quota(namespace="ml", requests={"cpu": "17"})

    in_room = plan(cluster_state([node("n0", 18), node("n1", 11)], [waiting], []), _FREE, NOW_S)
    in_quota = plan(
        cluster_state([node("n0", 90)], [waiting], []),
        _FREE.model_copy(update={"quotas": (quota,)}),
        NOW_S,
    )

    assert in_room.jobs[0].figures["missing"] == 12 - 3 - 2
    assert in_quota.jobs[0].reason is Reason.QUOTA_REACHED
    assert in_quota.jobs[0].figures["missing"] == 12 - 3


def test_a_master_that_fits_nowhere_keeps_its_job_from_starting() -> None:
    """The first trainer is larger than the others, which would fit."""
    waiting = job("a", 3, 3, cpu=5, master=True)

    new_plan = plan(
        cluster_state(
            [node("n0", 5), node("n1", 5), node("n2", 9)], [waiting], [service("s", 4, "n2")]
        ),
        _FREE,
        NOW_S,
    )
    small = plan(cluster_state([node(f"n{n}", 5) for n in range(9)], [waiting], []), _FREE, NOW_S)

    assert not new_plan.creates
    assert new_plan.jobs[0].figures["missing"] == 3
    assert small.jobs[0].reason is Reason.FITS_NO_NODE


def test_surplus_of_a_quota_is_not_chosen_one_by_one_where_all_of_it_is_too_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each choice looks at all jobs again, so that would be quadratic in every plan."""
    giver, newcomer = job("a", 1, 60, cpu=1), job("b", 50, 50, cpu=2)
    pods = trainers(giver, ["n0"] * 41)
    policy = _FREE.model_copy(update={"quotas": (Quota(namespace="ml", requests={"cpu": "60"}),)})
    cluster = cluster_state([node("n0", 200)], [giver, newcomer], pods)
    questions: list[str] = []
    relieves = Quotas.relieves

    def counted(quotas: Quotas, job_: Job, count: int, giver_: Job, servers: int = 0) -> bool:
        questions.append(giver_.key)
        return relieves(quotas, job_, count, giver_, servers)

    monkeypatch.setattr(Quotas, "relieves", counted)
    new_plan = plan(cluster, policy, NOW_S)

    assert not new_plan.releases
    assert len(questions) <= 2


def test_a_pod_that_fits_nowhere_is_not_compared_with_every_trainer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ending all surplus of a node would not make room for it, and that is known."""
    owner = job("a", 1, 60)
    cluster = cluster_state(
        [node(f"n{n}", 10) for n in range(20)],
        [owner],
        [*trainers(owner, [f"n{n}" for n in range(20)]), service("large", 11)],
    )
    monkeypatch.setattr(services, "_Reclaim", None)

    assert not plan(cluster, _FREE, NOW_S).releases


def test_trainers_of_an_unmanaged_job_are_released_once_for_services_of_several_shapes() -> None:
    """Each shape looks at the node, and what left for the first is no candidate for the second."""
    owner = job("a", 1, 9, cpu=5, managed=False, parallelism=3)
    pods = [service(f"p{n}", 5, "n0", namespace="ml", owner_uid=owner.uid) for n in range(3)]
    waiting = [service("one", 5), service("two", 4)]

    new_plan = plan(cluster_state([node("n0", 15)], [owner], [*pods, *waiting]), _FREE, NOW_S)

    assert len({release.uid for release in new_plan.releases}) == len(new_plan.releases) == 2


def test_a_trainer_is_found_whatever_its_tier_is_taken_for() -> None:
    """A guaranteed trainer above a lowered minimum counts as surplus; its pod says otherwise."""
    owner = job("a", 1, 3)
    pods = [trainer(owner, number, "n0", Tier.GUARANTEED) for number in range(3)]
    book = Book(cluster_state([node("n0", 20)], [owner], pods), _FREE, NOW_S, History())

    for pod in pods[:2]:
        book.entries[0].remove(pod)

    assert [pod.uid for pod in book.entries[0].live] == [pods[2].uid]


@CALM
@given(cases(), requests(), st.booleans(), st.integers(0, 4))
def test_the_count_is_what_can_be_placed(
    case: Case, needs: dict[str, int], named: bool, before: int
) -> None:
    """Placing pods one after the other comes to the same number, also after other reservations."""
    cluster = ClusterState.of(case.snapshot)
    constraints = _N1 if named else ANYWHERE
    capacity = FreeCapacity(cluster, case.policy, NOW_S)
    for _ in range(before):
        place, _ = capacity.choose_node(shape(2), ANYWHERE, pooled=True)
        if place:
            capacity.reserve(place, shape(2))
    count = capacity.slots(needs, constraints, pooled=True)

    placed = 0
    while (found := capacity.choose_node(needs, constraints, pooled=True))[0]:
        capacity.reserve(found[0], needs)
        placed += 1

    assert placed == count
    assert capacity.slots(needs, constraints, pooled=True) == 0


def test_counts_follow_the_cluster() -> None:
    """A node that comes, changes, closes or goes; and what pods there leave."""
    cluster = cluster_state([node("n0", 10)], [], [])

    def total() -> int:
        return cluster.slots(shape(5), ANYWHERE).total

    counts = [total()]
    cluster.put_node(node("n1", 16))
    counts.append(total())
    cluster.put_pod(service("s", 6, "n1"))
    counts.append(total())
    cluster.put_pod(service("s", 6, "n1", deleting=True))
    counts.append(total())
    cluster.put_node(node("n1", 16, unschedulable=True))
    counts.append(total())
    cluster.drop_node("n0")
    counts.append(total())

    assert counts == [2, 5, 4, 5, 2, 0]
    assert cluster.largest(ANYWHERE) == {}


def test_the_counts_of_shapes_asked_about_longest_ago_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The memory is bounded."""
    monkeypatch.setattr(fits, "_MAX_PRICES", 50)
    cluster = cluster_state([node(f"n{n}", 10) for n in range(4)], [], [])
    first = cluster.slots(shape(1), ANYWHERE)
    second = cluster.slots(shape(2), ANYWHERE)
    cluster.slots(shape(3), ANYWHERE)

    assert cluster.slots(shape(2), ANYWHERE) is second
    assert cluster.slots(shape(1), ANYWHERE) is not first


def test_the_largest_amounts_are_looked_up_again_only_where_a_node_changed() -> None:
    """A pod that comes or goes does not change what an empty node offers."""
    cluster = cluster_state([node("n0", 10), node("n1", 4, memory=99)], [], [])
    largest = cluster.largest(ANYWHERE)
    cluster.put_pod(service("s", 6, "n0"))

    assert cluster.largest(ANYWHERE) is largest
    assert amounts.within(shape(10, 99), largest)
    assert not cluster.fits_empty_node(shape(10, 99), ANYWHERE)
    cluster.put_node(replace(cluster.nodes["n1"], allocatable=shape(12, 99)))
    assert cluster.largest(ANYWHERE)["cpu"] == 12_000
    assert cluster.fits_empty_node(shape(12, 99), ANYWHERE)
