"""Which nodes jobs avoid, and which failures count against them."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from policy.cluster.placement import admits
from policy.cluster.snapshot import Constraints, Job, Phase, Pod, Requirement
from policy.document.model import NodePool, Policy
from policy.names import Tier
from policy.planning import node_failures
from policy.planning.free_capacity import FreeCapacity
from policy.planning.node_failures import MAX_AVOIDED, AvoidedNodes, Blame
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import (
    NOW_S,
    cluster_state,
    job,
    node,
    server,
    servers,
    service,
    shape,
    trainer,
)

_JOB = job("a", 1, 20)
_NODES = [node(f"n{i}") for i in range(5)]


def _failed(number: int, where: str, ago_s: float = 10.0, owner: Job = _JOB, **fields: Any) -> Pod:
    """A trainer that failed two seconds after its creation."""
    end_s = NOW_S - ago_s
    times = {"created_s": end_s - 2, "started_s": end_s - 1, "ended_s": end_s, "ran_s": 1.0}
    values: dict[str, Any] = {"phase": Phase.FAILED, "ready": False} | times | fields
    return trainer(owner, number, where, **values)


def _avoided(pods: list[Pod], *jobs: Job, of: Job = _JOB) -> dict[str, float]:
    state = cluster_state(_NODES, jobs or (_JOB,), pods)
    return AvoidedNodes(state, (), NOW_S).of(of)


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, True),
        ({"ran_s": 29.9}, True),
        ({"ran_s": 30.0}, False),
        ({"ran_s": 0.0, "rejected": True}, True),
        ({"disrupted": True}, False),
        ({"deleting": True}, False),
        ({"phase": Phase.SUCCEEDED}, False),
        ({"phase": Phase.RUNNING}, False),
        ({"node": ""}, False),
    ],
)
def test_only_trainers_that_fail_at_their_start_count(
    fields: dict[str, Any], *, counts: bool
) -> None:
    """A trainer that worked for a while, was evicted or finished says nothing about its node."""
    assert bool(_avoided([_failed(0, "n0", **fields)])) == counts


@pytest.mark.parametrize(
    ("ago_s", "for_s"),
    [
        ((1,), 600),
        ((1, 1, 3), 600),
        ((1, 700), 1200),
        ((1, 700, 2000), 2400),
        ((1, 700, 2000, 5000, 9000), 3600),
        ((1, 21_700), 600),
        ((601,), 0),
    ],
)
def test_a_node_is_avoided_for_longer_each_time(ago_s: tuple[int, ...], for_s: int) -> None:
    """Ten minutes, doubling up to an hour; trainers that met it together count once."""
    avoided = _avoided([_failed(i, "n0", ago) for i, ago in enumerate(ago_s)])

    assert avoided == ({"n0": NOW_S - ago_s[0] + for_s} if for_s else {})


@pytest.mark.parametrize("skew_s", [-3600.0, 3600.0])
def test_a_wrong_clock_of_the_node_changes_little(skew_s: float) -> None:
    """A bad node may have one: it is avoided for ten minutes all the same."""
    pod = _failed(0, "n0", 1.0)
    (until_s,) = _avoided([replace(pod, ended_s=pod.ended_s + skew_s)]).values()

    assert until_s - NOW_S == pytest.approx(600, abs=5)


def test_trainers_created_after_a_failure_count_again() -> None:
    """They were made although it was known."""
    pods = [_failed(0, "n0", 100), _failed(1, "n0", 95), _failed(2, "n0", 60)]

    assert [len(batch) for batch in node_failures.batches(pods)["n0"]] == [2, 1]


def test_a_job_avoids_a_limited_number_of_nodes() -> None:
    """The ones that failed last: each is an entry in the spec of its trainers."""
    pods = [trainer(_JOB, 20 + i, f"m{i}") for i in range(15)]
    avoided = _avoided([*pods, *(_failed(i, f"n{i:02}", 100 - i) for i in range(15))])

    assert sorted(avoided) == [f"n{i:02}" for i in range(15 - MAX_AVOIDED, 15)]


def _jobs(*namespaces: str) -> list[Job]:
    return [job(f"j{i}", namespace=name) for i, name in enumerate(namespaces)]


@pytest.mark.parametrize(
    ("namespaces", "avoided"),
    [
        (("ml", "ml"), False),
        (("ml", "ml", "ml"), True),
        (("ml", "ml", "x"), True),
        (("ml", "x", "x"), False),
        (("x", "x", "x"), False),
        (("x", "y", "z"), True),
    ],
)
def test_all_avoid_a_node_where_several_jobs_failed(
    namespaces: tuple[str, ...], *, avoided: bool
) -> None:
    """Jobs of another namespace count as one: no tenant closes a node to the others."""
    jobs = _jobs(*namespaces)
    pods = [_failed(0, "n0", 10.0 + i, owner) for i, owner in enumerate(jobs)]
    pods += [trainer(owner, 1, "n4") for owner in jobs]

    assert _avoided(pods, _JOB, *jobs) == ({"n0": NOW_S - 12 + 600} if avoided else {})


@pytest.mark.parametrize(
    "others", [(), ("n0", NOW_S - 100), ("n4", NOW_S - 29)], ids=["nothing", "there", "briefly"]
)
def test_a_job_that_has_run_nowhere_else_has_no_vote(others: tuple[Any, ...]) -> None:
    """Programs that always crash would close a node to everybody; each avoids it itself."""
    jobs = _jobs("x", "y", "z")
    pods = [_failed(0, "n0", 10.0, owner) for owner in jobs]
    if others:
        pods += [trainer(owner, 1, others[0], started_s=others[1]) for owner in jobs]

    assert _avoided(pods, _JOB, *jobs) == {}
    assert list(_avoided(pods, *jobs, of=jobs[0])) == ["n0"]


def test_a_job_that_fails_on_many_nodes_accuses_none() -> None:
    """Nor does it avoid them: it would fail or work anywhere, and only wait."""
    jobs = _jobs("ml", "ml", "ml")
    pods = [_failed(i, f"n{i}", 10, owner) for owner in jobs for i in range(3)]
    pods += [trainer(owner, 3, "n4") for owner in jobs]

    assert _avoided(pods, _JOB, *jobs) == {}
    assert _avoided(pods, *jobs, of=jobs[0]) == {}


def test_a_job_that_runs_on_more_nodes_than_it_fails_on_does_accuse() -> None:
    """Three bad nodes in a large cluster."""
    jobs = _jobs("ml", "ml", "ml")
    pods = [_failed(i, f"n{i}", 10, owner) for owner in jobs for i in range(3)]
    pods += [trainer(owner, 3 + i, f"m{i}") for owner in jobs for i in range(3)]

    assert sorted(_avoided(pods, _JOB, *jobs)) == ["n0", "n1", "n2"]


def test_a_plan_makes_no_trainer_on_an_avoided_node() -> None:
    """Neither guaranteed ones nor surplus; each creation names the node."""
    state = cluster_state(_NODES[:2], [_JOB], [_failed(0, "n0")])
    new_plan = plan(state, Policy(), NOW_S)

    assert {name for create in new_plan.creates for name in create.nodes} == {"n1"}
    assert {create.avoided_nodes for create in new_plan.creates} == {("n0",)}
    assert {create.tier for create in new_plan.creates} == {Tier.GUARANTEED, Tier.SURPLUS}
    assert list(new_plan.avoided) == ["ml/a"]


@pytest.mark.parametrize(("low", "where"), [(15, ["n1"]), (25, ["n0", "n1"])])
def test_a_minimum_that_fits_nowhere_else_does_not_avoid_a_node(low: int, where: list[str]) -> None:
    """It prefers other nodes, but does not wait for them; surplus does."""
    owner = job("a", low, 40)
    state = cluster_state([node("n0", 100), node("n1", 100)], [owner], [_failed(0, "n0")])
    new_plan = plan(state, Policy(), NOW_S)
    by_tier = {create.tier: create for create in new_plan.creates}
    avoided = {tier: create.avoided_nodes for tier, create in by_tier.items()}

    assert sorted(set(by_tier[Tier.GUARANTEED].nodes)) == where
    assert by_tier[Tier.GUARANTEED].count == low
    assert avoided.pop(Tier.GUARANTEED) == (() if "n0" in where else ("n0",))
    assert set(avoided.values()) <= {("n0",)}
    assert list(new_plan.avoided["ml/a"]) == ["n0"]


@pytest.mark.parametrize(("room", "where", "avoided"), [(12, "n1", ("n0",)), (5, "n0", ())])
def test_a_master_returns_to_an_avoided_node_where_no_other_has_room(
    room: int, where: str, avoided: tuple[str, ...]
) -> None:
    """Without it the job would soon have nothing to do."""
    owner = replace(_JOB, min_trainers=1, max_trainers=1, master=True)
    live = trainer(owner, 1, "n1", Tier.GUARANTEED)
    failed = _failed(0, "n0", owner=owner)
    state = cluster_state([node("n0", 6), node("n1", room)], [owner], [failed, live])
    new_plan = plan(state, Policy(), NOW_S)

    assert [create.nodes for create in new_plan.creates] == [(where,)]
    assert [create.avoided_nodes for create in new_plan.creates] == [avoided]
    assert [release.pod for release in new_plan.releases] == [live.name]


def test_a_job_that_waits_is_told_about_all_nodes() -> None:
    """Those that it avoids were tried, too."""
    owner = job("a", 1, 1, cpu=19.95, master=True)
    pods = [_failed(0, "n0", owner=owner), service("web", 15, "n0")]
    state = cluster_state([node("n0", 30), node("n1", 20)], [owner], pods)
    (job_plan,) = plan(state, Policy(), NOW_S).jobs

    assert job_plan.reason is Reason.WAITING_FOR_ROOM


@pytest.mark.parametrize("other", [None, node("n1", 4), node("n1", unschedulable=True)])
def test_a_job_without_another_node_avoids_none(other: Any) -> None:
    """It would wait for ever; a crash of its program on a cluster of one node is a failure."""
    state = cluster_state([*_NODES[:1], *([other] if other else [])], [_JOB], [_failed(0, "n0")])
    new_plan = plan(state, Policy(), NOW_S)

    assert {name for create in new_plan.creates for name in create.nodes} == {"n0"}
    assert new_plan.avoided == {}


def test_nodes_outside_of_the_pools_are_no_other_nodes() -> None:
    """Trainers may not use them."""
    nodes = [node("n0", labels={"pool": "a"}), node("n1")]
    pools = (NodePool(name="a", labels={"pool": "a"}),)
    state = cluster_state(nodes, [_JOB], [_failed(0, "n0")])

    assert AvoidedNodes(state, pools, NOW_S).avoiding(_JOB) == _JOB
    assert AvoidedNodes(state, (), NOW_S).avoiding(_JOB) != _JOB


def test_an_unmanaged_job_avoids_nothing() -> None:
    """The built-in controller makes its pods."""
    unmanaged = replace(_JOB, managed=False)
    state = cluster_state(_NODES, [unmanaged], [_failed(0, "n0")])

    assert AvoidedNodes(state, (), NOW_S).avoiding(unmanaged) == unmanaged


def test_a_parameter_server_may_run_where_trainers_fail() -> None:
    """Its pod has no such affinity, and what kills trainers is mostly a GPU."""
    owner = replace(_JOB, servers=servers(2), master=True)
    state = cluster_state(
        [node("n0"), node("n1", 5)],
        [owner],
        [_failed(0, "n0"), trainer(owner, 1, "n1", Tier.GUARANTEED), server(owner, 0, "n0")],
    )
    new_plan = plan(state, Policy(), NOW_S)

    assert [create.nodes for create in new_plan.server_creates] == [("n0",)]


def test_every_alternative_excludes_the_nodes() -> None:
    """Terms of node affinity are alternatives; an avoided node is none for any of them."""
    gpu, old = (Requirement("gpu", "Exists", ()),), (Requirement("old", "Exists", ()),)
    constraints = Constraints((gpu, old), avoided=("n0", "n1"))
    nodes = [node(name, labels={"old": "1"}) for name in ("n0", "n1", "n2")]

    assert [admits(each, constraints) for each in nodes] == [Reason.NODE_AVOIDED] * 2 + [None]
    assert cluster_state(nodes).open_nodes(constraints) == {"n2"}
    assert constraints.shared == Constraints((gpu, old))


def test_jobs_that_avoid_different_nodes_share_prices() -> None:
    """Each distinct set of nodes would be one more list of prices to keep up to date."""
    state = cluster_state([node(f"n{number}", 5.0 + number) for number in range(4)])
    capacity = FreeCapacity(state, Policy(), NOW_S)

    def first(*avoided: str) -> str:
        constraints = Constraints(avoided=avoided)
        return capacity.cheapest_node(shape(cpu=5), constraints, pooled=True)

    assert [first(), first("n0"), first("n0", "n1"), first("n1"), first()] == [
        "n0",
        "n1",
        "n2",
        "n0",
        "n0",
    ]
    capacity.reserve("n0", shape(cpu=5))
    capacity.unreserve("n0", shape(cpu=5))
    assert [first("n0"), first(), first("n0", "n1", "n2", "n3")] == ["n1", "n0", ""]
    assert list(state._prices._open) == [(Constraints(), False)]  # noqa: SLF001 - what is kept


def test_the_first_failure_counts_where_a_job_runs_nowhere() -> None:
    """Its program or the node: nobody knows; those that met the node with it do not count."""
    first, second = _failed(0, "n0", 10.0), _failed(1, "n0", 9.0)
    blame = Blame([first, second])

    assert (blame.is_of_node(first), blame.is_of_node(second)) == (False, True)
    assert (blame.repeats(first), blame.repeats(second)) == (False, True)


@pytest.mark.parametrize(
    ("others", "excused"),
    [
        ([trainer(_JOB, 5, "n4")], True),
        ([trainer(_JOB, 5, "n0")], False),
        ([trainer(_JOB, 5, "n4", started_s=NOW_S - 39)], False),
        ([trainer(_JOB, 5, "n4", deleting=True)], False),
        ([trainer(_JOB, 5)], False),
    ],
)
def test_the_node_is_to_blame_where_the_job_runs_elsewhere(
    others: list[Pod], *, excused: bool
) -> None:
    """And has done so for longer than a failure at the start takes."""
    failed = _failed(0, "n0", 10.0)

    assert Blame([failed, *others]).is_of_node(failed) == excused


@pytest.mark.parametrize(("where", "excused"), [(("n0", "n1"), True), (("n0", "n1", "n2"), False)])
def test_failures_on_many_nodes_are_the_jobs_own(where: tuple[str, ...], *, excused: bool) -> None:
    """Whatever else runs, as long as it runs on fewer nodes."""
    pods = [_failed(i, name, 10.0) for i, name in enumerate(where)]

    assert Blame([*pods, trainer(_JOB, 9, "n4")]).is_of_node(pods[0]) == excused


@pytest.mark.parametrize(
    ("tier", "low", "running", "excused"),
    [
        (Tier.SURPLUS, 2, 2, True),
        (Tier.SURPLUS, 2, 1, False),
        (Tier.SURPLUS, 0, 1, True),
        (Tier.SURPLUS, 0, 0, False),
        (Tier.GUARANTEED, 1, 2, False),
    ],
)
def test_failures_of_surplus_are_excused_while_the_minimum_runs(
    tier: Tier, low: int, running: int, *, excused: bool
) -> None:
    """Or one other trainer, for a job without a minimum."""
    failed = _failed(0, "n0", tier=tier, ran_s=100.0)
    blame = Blame([failed, *(trainer(_JOB, 1 + i, "n4") for i in range(running))])

    assert blame.is_of_surplus(failed, low) == excused
    assert not blame.is_of_node(failed)


class _Counted(list[Pod]):
    """Pods, and how often they were looked through."""

    times = 0

    def __iter__(self) -> Iterator[Pod]:
        self.times += 1
        return super().__iter__()


def test_all_pods_are_looked_through_once_for_all_failures() -> None:
    """A job of thousands of trainers may fail as a whole, in one tick."""
    pods = _Counted(_failed(i, f"n{i}", 10.0 + i) for i in range(100))
    blame = Blame(pods)
    times = pods.times
    for number in range(100):
        blame.excuses(pods[number], 1)

    assert pods.times == times


@pytest.mark.parametrize("seed", range(20))
def test_blame_goes_by_what_failed_and_ran_around_each_failure(seed: int) -> None:
    """Failures within ten minutes, and trainers that had run for thirty seconds."""
    rng = random.Random(seed)  # noqa: S311
    nodes = [f"n{i}" for i in range(rng.randint(2, 8))]
    failed = [_failed(i, rng.choice(nodes), rng.randint(0, 30) * 100.0) for i in range(12)]
    running = [
        trainer(_JOB, 20 + i, rng.choice(nodes), started_s=NOW_S - rng.randint(0, 30) * 100)
        for i in range(rng.randint(0, 6))
    ]
    blame = Blame([*failed, *running])

    for pod in failed:
        failing = {p.node for p in failed if abs(p.ended_s - pod.ended_s) < 600}
        ran = {p.node for p in running if p.started_s <= pod.ended_s - 30} - failing
        own = len(failing) >= 3 and len(failing) > len(ran)
        assert blame.is_of_node(pod) == (not own and (bool(ran) or blame.repeats(pod)))
