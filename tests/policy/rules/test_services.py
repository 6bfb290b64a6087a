from dataclasses import replace
from typing import Any

import pytest

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Constraints, Job, Node, Pod, Requirement, Snapshot
from policy.document.model import Policy, Reserve
from policy.names import NODE_NAME, Tier
from policy.planning.book import Book
from policy.planning.plan import History, Plan
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import (
    LONG_AGO_S,
    NOW_S,
    cluster_state,
    job,
    node,
    service,
    shape,
    trainer,
    trainers,
)

_FREE = Policy(reserve=Reserve(max_load={}))
_A, _B = job("a", 1, 9), job("b", 1, 9)


def _plan(
    nodes: list[Node], jobs: list[Job], pods: list[Pod], history: History | None = None
) -> Plan:
    return plan(cluster_state(nodes, jobs, pods), _FREE, NOW_S, history)


def _released(new_plan: Plan) -> list[str]:
    return [release.uid for release in new_plan.releases]


def test_waiting_services_are_placed_before_anything_grows() -> None:
    """Free room that a service will take is not shared out."""
    pods = [*trainers(_A, ["n0"]), service("s", 6)]

    new_plan = _plan([node("n0", 15)], [_A], pods)

    assert new_plan.empty


def test_a_nominated_service_holds_its_node() -> None:
    """Its room counts there and nowhere else."""
    pods = [*trainers(_A, ["n1"]), service("s", 5, nominated="n0")]

    new_plan = _plan([node("n0", 5), node("n1", 10)], [_A], pods)

    assert [create.count for create in new_plan.creates] == [1]


def test_room_is_made_at_once_for_all_services_of_a_burst() -> None:
    """As few trainers as possible are released, from the richest job; figures name the service."""
    pods = [*trainers(_A, ["n0", "n0", "n1"]), *trainers(_B, ["n1"])]
    pods += [service("s0", 3), service("s1", 3)]

    new_plan = _plan([node("n0", 11), node("n1", 10)], [_A, _B], pods)

    assert _released(new_plan) == ["a-001"]
    assert new_plan.releases[0].reason is Reason.SERVICES_FIRST
    assert new_plan.reclaimed_for == {"uid-s0"}


def test_no_trainer_leaves_for_a_service_that_may_lack_what_the_policy_ignores() -> None:
    """Devices of a claim, say: whether freed CPU helps only kube-scheduler knows."""
    policy = _FREE.model_copy(update={"ignored_resources": ("example.com/device",)})
    needs = shape(3)
    nodes, net = (node("n0", 5),), job("net")
    for requests, released in ((needs, 1), ({**needs, "example.com/device": 1000}, 0)):
        pods = (trainer(net, 1, "n0"), service("s", requests=requests))
        cluster = ClusterState.of(Snapshot(nodes=nodes, jobs=(net,), pods=pods), policy)

        assert len(plan(cluster, policy, NOW_S, History()).releases) == released


def test_room_that_is_coming_is_not_made_again() -> None:
    """A trainer that is leaving already is enough."""
    pods = [*trainers(_A, ["n0"]), trainer(_A, 5, "n0", deleting=True), service("s", 5)]

    assert _plan([node("n0", 10)], [_A], pods).empty


@pytest.mark.parametrize(
    ("due_s", "released"),
    [(NOW_S + 15, []), (NOW_S - 5, []), (NOW_S + 16, ["a-001"]), (NOW_S - 6, ["a-001"])],
)
def test_nobody_waits_for_a_pod_that_leaves_slowly(due_s: float, released: list[str]) -> None:
    """Its room is coming only where it is due in a trainer's grace, and not overdue."""
    pods = [*trainers(_A, ["n1", "n1"]), service("s", 5)]
    pods += [service("kafka-0", 5, "n0", deleting=True, leaves_by_s=due_s)]

    assert _released(_plan([node("n0", 5), node("n1", 10)], [_A], pods)) == released


def test_trainers_do_not_wait_for_a_pod_that_leaves_slowly() -> None:
    """The load that it holds does not count as leaving either."""
    broker = service("kafka-0", 5, "n0", deleting=True, leaves_by_s=NOW_S + 300)
    book = Book(cluster_state([node("n0", 5)], [_A], [broker]), _FREE, NOW_S, History())

    assert book.capacity.releasing("n0") == {"cpu": 0, "pods": 0}
    assert book.capacity.free_later("n0")["cpu"] == 0


def test_guaranteed_trainers_are_left_to_the_scheduler() -> None:
    """The plan makes room with surplus only."""
    pods = [trainer(_A, 0, "n0", Tier.GUARANTEED), service("s", 5)]

    assert _plan([node("n0", 5)], [_A], pods).empty


def test_trainers_are_not_released_for_trainers() -> None:
    """A waiting guaranteed trainer has its room counted; kube-scheduler preempts for it."""
    pods = [*trainers(_A, ["n0", "n0"]), trainer(_B, 0, tier=Tier.GUARANTEED)]

    assert _plan([node("n0", 10)], [_A, _B], pods).empty


def test_a_service_that_ranks_below_surplus_takes_nothing() -> None:
    """Only pods of lower priority can be preempted, so only for such room is made."""
    pods = [*trainers(_A, ["n0", "n0"]), service("low", 5, priority=-2_000)]

    assert _plan([node("n0", 10)], [_A], pods).empty


def test_help_is_repeated_with_growing_patience() -> None:
    """A pod that does not take its room waits for something else: 10 s, then 20, then 40."""
    pods = [*trainers(_A, ["n0", "n0"]), service("s", 5)]

    def releases_again(times: int, ago_s: float) -> bool:
        history = History(reclaimed_for={"uid-s": (times, NOW_S - ago_s)})
        return not _plan([node("n0", 10)], [_A], pods, history).empty

    assert not releases_again(1, 9.0)
    assert releases_again(1, 10.0)
    assert not releases_again(3, 39.0)
    assert releases_again(3, 40.0)
    assert releases_again(1000, 640.0)


def test_gated_pods_want_nothing_yet() -> None:
    """A pod with scheduling gates is not waiting for room."""
    pods = [*trainers(_A, ["n0"]), service("s", 5, gated=True)]

    new_plan = _plan([node("n0", 10)], [_A], pods)

    assert [create.count for create in new_plan.creates] == [1]


@pytest.mark.parametrize(
    "hopeless",
    [
        service("huge", 500),
        service("gpu", 1, requests={"nvidia.com/gpu": 1, "pods": 1}),
        service(
            "elsewhere",
            1,
            constraints=Constraints(terms=((Requirement("zone", "In", ("b",)),),)),
        ),
    ],
)
def test_a_service_that_fits_nowhere_holds_nothing_up(hopeless: Pod) -> None:
    """What training cannot give is not waited for: sharing and the reserve go on."""
    pods = [*trainers(_A, ["n0"] * 3), *trainers(_B, ["n0"]), hopeless]

    new_plan = _plan([node("n0", 20)], [_A, _B], pods)

    assert [release.reason for release in new_plan.releases] == [Reason.FAIR_SHARE]


def test_during_a_burst_nothing_moves_for_fairness() -> None:
    """Services decide first what there is to share."""
    pods = [*trainers(_A, ["n0"] * 5), *trainers(_B, ["n0"])]

    new_plan = _plan(
        [node("n0", 30), node("n1", 2)], [_A, _B], [*pods, service("s", 3, nominated="n1")]
    )

    assert new_plan.empty
    assert len(_plan([node("n0", 30)], [_A, _B], pods).releases) == 1


def test_a_nominated_service_that_fits_holds_up_no_move() -> None:
    """kube-scheduler nominates pods that wait for their volumes, too: for minutes, or for ever."""
    rich, poor = job("rich", 1, 10), job("poor", 1, 10)
    pods = [*trainers(rich, ["n0"] * 4), *trainers(poor, ["n1"])]
    nodes = [node("n0", 20), node("n1", 8)]
    waits = service("volume", 3, nominated="n1")
    fills = service("burst", 5, nominated="n0")

    assert [r.reason for r in _plan(nodes, [rich, poor], [*pods, waits]).releases] == [
        Reason.FAIR_SHARE
    ]
    assert _plan(nodes, [rich, poor], [*pods, waits, fills]).releases == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"preempts": False},
        {"scheduler": "volcano"},
        {"only_resources": False},
        {
            "preempts": False,
            "constraints": Constraints(((Requirement(NODE_NAME, "In", ("n0",)),),)),
        },
    ],
)
def test_a_service_that_may_wait_for_ever_holds_up_no_move(fields: dict[str, Any]) -> None:
    """On a full cluster one such pod stopped all moves, and the restoring of the reserve."""
    pods = [*trainers(_A, ["n0"] * 4), *trainers(_B, ["n1"])]
    nodes = [node("n0", 20), node("n1", 6)]
    waits = replace(service("s", 3), **fields)
    new_plan = _plan(nodes, [_A, _B], [*pods, waits])

    assert [release.reason for release in new_plan.releases] == [Reason.FAIR_SHARE]


@pytest.mark.parametrize("volumes", [False, True])
def test_a_waiting_minimum_holds_up_moves_only_where_it_needs_nothing_but_room(
    *, volumes: bool
) -> None:
    """kube-scheduler preempts for it in a second; one whose claim is missing waits for ever."""
    pods = [*trainers(_A, ["n0"] * 4), *trainers(_B, ["n1"])]
    starts = trainer(job("c", 1, 1), 0, tier=Tier.GUARANTEED, created_s=NOW_S - 1)
    pods.append(replace(starts, only_resources=not volumes))
    new_plan = _plan([node("n0", 20), node("n1", 6)], [_A, _B, job("c", 1, 1)], pods)

    assert bool(new_plan.releases) is volumes


def test_room_made_for_services_is_not_promised_twice() -> None:
    """A new job is admitted only if its minimum fits beside the services that trainers leave for."""
    new = job("new", 1, 1, cpu=10, created_s=LONG_AGO_S)
    pods = [*trainers(_A, ["n0", "n0", "n0"]), service("s", 5)]

    new_plan = _plan([node("n0", 15)], [_A, new], pods)

    assert len(new_plan.releases) == 1
    assert not new_plan.creates


def test_the_cheapest_node_is_asked_again_after_each_pod() -> None:
    """Each node gives until another is cheaper: 4 services need 2 nodes' surplus, not 4."""
    pods = trainers(_A, ["n0", "n1", "n1", "n2", "n2", "n3"])
    pods += [service(f"s{i}", 5) for i in range(4)]

    new_plan = _plan([node(f"n{i}", 10) for i in range(4)], [_A], pods)

    # n0 and n3 have 5 free each: two services go there, the other two need one trainer each.
    assert len(new_plan.releases) == 2
    assert {release.node for release in new_plan.releases} <= {"n1", "n2", "n3"}


def test_services_larger_than_a_trainer_take_several() -> None:
    """All victims of one service are on one node."""
    pods = [*trainers(_A, ["n0", "n0", "n0", "n1", "n1"]), service("s", 10)]

    new_plan = _plan([node("n0", 15), node("n1", 10)], [_A], pods)

    assert [release.node for release in new_plan.releases] in (["n0", "n0"], ["n1", "n1"])


def test_unschedulable_services_of_several_shapes_share_what_is_there() -> None:
    """Those of higher priority are placed first."""
    pods = [*trainers(_A, ["n0", "n0"]), service("low", 5), service("high", 4, priority=100)]

    new_plan = _plan([node("n0", 10)], [_A], pods)

    assert new_plan.reclaimed_for == {"uid-high"}


@pytest.mark.parametrize(
    "kind",
    [{"preempts": False}, {"only_resources": False}, {"scheduler": "volcano"}, {"marked": True}],
)
def test_nothing_is_released_for_a_pod_whose_scheduler_alone_knows_what_it_lacks(
    kind: dict[str, Any],
) -> None:
    """A claim, a place apart from others, another scheduler, a resource that no node has; or it wants nobody evicted."""
    pods = [*trainers(_A, ["n0", "n0"]), service("s", 5, **kind)]

    assert _released(_plan([node("n0", 10)], [_A], pods)) == []


@pytest.mark.parametrize(("refused", "limit_s"), [(True, 20.0), (False, 60.0)])
def test_capacity_that_a_pod_does_not_take_is_given_to_trainers(
    *, refused: bool, limit_s: float
) -> None:
    """It waits for something else; kube-scheduler has tried it, or had the time to."""
    pods = [*trainers(_A, ["n0"]), service("s", 5, refused=refused)]

    def created(waited_s: float) -> int:
        history = History(offered={"uid-s": (NOW_S - waited_s, 1)})
        return sum(create.count for create in _plan([node("n0", 10)], [_A], pods, history).creates)

    assert created(limit_s - 0.1) == 0
    assert created(limit_s) == 1


def test_who_declined_capacity_is_remembered_as_long_as_it_waits() -> None:
    """Or it would be offered capacity again and again, for a minute each time."""
    pods = [*trainers(_A, ["n0"]), service("s", 5)]
    history = History(offered={"uid-s": (NOW_S - 100.0, 1), "uid-gone": (NOW_S - 100.0, 1)})

    assert _plan([node("n0", 10)], [_A], pods, history).offered == {"uid-s": 1}


def test_pods_of_an_owner_decline_together_unless_fewer_wait_than_before() -> None:
    """Else capacity would be kept for each of twenty stuck replicas, one after the other."""
    pods = [*trainers(_A, ["n0"]), *(service(f"s{n}", 5, owner_uid="web") for n in range(3))]

    def created(before: int) -> int:
        history = History(offered={"web": (NOW_S - 100.0, before)})
        return sum(create.count for create in _plan([node("n0", 10)], [_A], pods, history).creates)

    assert created(before=3) == 1
    assert created(before=4) == 0


def test_nothing_is_released_for_a_pod_that_declined_capacity() -> None:
    """On a full cluster neither."""
    pods = [*trainers(_A, ["n0", "n0"]), service("s", 5)]
    history = History(offered={"uid-s": (NOW_S - 100.0, 1)})

    assert _released(_plan([node("n0", 10)], [_A], pods, history)) == []


def _growing(name: str, lacking: float, **fields: Any) -> Pod:
    """A service of 5 CPU on n0 that waits to become larger in place by `lacking`."""
    return service(name, 5 + lacking, "n0", resize={"cpu": int(lacking * 1000)}, **fields)


@pytest.mark.parametrize(("lacking", "count"), [(1, 0), (2, 1), (5, 1), (6, 1), (7, 2), (17, 0)])
def test_trainers_give_way_to_a_service_that_grows_in_place(lacking: float, count: int) -> None:
    """As few as are needed for the difference, on its node; where all are too few, none."""
    pods = [*trainers(_A, ["n1", "n0", "n0", "n0"]), _growing("db", lacking)]

    new_plan = _plan([node("n0", 21), node("n1", 5)], [_A], pods)

    assert len(_released(new_plan)) == count
    assert {release.node for release in new_plan.releases} <= {"n0"}
    assert {release.reason for release in new_plan.releases} <= {Reason.SERVICES_FIRST}
    assert new_plan.reclaimed_for == ({"uid-db"} if count else set())


def test_a_service_that_grows_says_how_much_it_lacks() -> None:
    """And not what it has already."""
    pods = [*trainers(_A, ["n1", "n0"]), _growing("db", 2)]

    new_plan = _plan([node("n0", 10), node("n1", 5)], [_A], pods)

    assert new_plan.releases[0].figures == {"service": "shop/db", "needs": {"cpu": 2000}}


def test_services_that_grow_on_one_node_are_served_by_priority() -> None:
    """There is enough for one of them, and trainers do not take it."""
    pods = [*trainers(_A, ["n1", "n0"]), _growing("db", 5), _growing("high", 4, priority=9)]

    new_plan = _plan([node("n0", 15), node("n1", 5)], [_A], pods)

    assert new_plan.reclaimed_for == {"uid-high"}
    assert not new_plan.creates


@pytest.mark.parametrize(
    "growing",
    [
        _growing("db", 2, preempts=False),
        _growing("db", 2, deleting=True),
        _growing("db", 2, priority=-2000),
        replace(trainer(_B, 1, "n0"), requests=shape(7), resize=shape(2)),
    ],
)
def test_who_would_preempt_nobody_takes_nothing_for_its_growth(growing: Pod) -> None:
    """Training, low priorities, `preemptionPolicy: Never`, and what is leaving."""
    pods = [*trainers(_A, ["n1", "n0"]), growing]

    assert not _plan([node("n0", 10), node("n1", 5)], [_A], pods).releases


def test_growth_on_a_node_that_is_gone_is_no_demand() -> None:
    """Its pods will be replaced elsewhere."""
    pods = [*trainers(_A, ["n1", "n1"]), _growing("db", 2)]

    assert not _plan([node("n1", 10)], [_A], pods).releases


def test_growth_that_brings_nothing_is_served_less_and_less() -> None:
    """The kubelet may still not admit it; as with pods that wait for something else."""
    pods = [*trainers(_A, ["n1", "n0"]), _growing("db", 2)]
    before = History(reclaimed_for={"uid-db": (1, NOW_S - 9)})

    assert not _plan([node("n0", 10), node("n1", 5)], [_A], pods, before).releases
