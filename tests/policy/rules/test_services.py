import pytest

from policy.elasticity import plan
from policy.model import Policy, Reserve
from policy.names import Tier
from policy.planning import History, Plan
from policy.reasons import Reason
from policy.snapshot import Constraints, Job, Node, Pod, Requirement
from tests.support.builders import LONG_AGO_S, NOW_S, index, job, node, service, trainer, trainers

_FREE = Policy(reserve=Reserve(max_load={}))
_A, _B = job("a", 1, 9), job("b", 1, 9)


def _plan(
    nodes: list[Node], jobs: list[Job], pods: list[Pod], history: History | None = None
) -> Plan:
    return plan(index(nodes, jobs, pods), _FREE, NOW_S, history)


def _let_go(made: Plan) -> list[str]:
    return [release.uid for release in made.releases]


def test_waiting_services_are_placed_before_anything_grows() -> None:
    """Free room that a service will take is not shared out."""
    pods = [*trainers(_A, ["n0"]), service("s", 6)]

    made = _plan([node("n0", 15)], [_A], pods)

    assert made.empty


def test_a_nominated_service_holds_its_node() -> None:
    """Its room counts there and nowhere else."""
    pods = [*trainers(_A, ["n1"]), service("s", 5, nominated="n0")]

    made = _plan([node("n0", 5), node("n1", 10)], [_A], pods)

    assert [create.count for create in made.creates] == [1]


def test_room_is_made_at_once_for_all_services_of_a_burst() -> None:
    """As few trainers as possible go, from the job that holds most, and the plan says for whom."""
    pods = [*trainers(_A, ["n0", "n0", "n1"]), *trainers(_B, ["n1"])]
    pods += [service("s0", 3), service("s1", 3)]

    made = _plan([node("n0", 11), node("n1", 10)], [_A, _B], pods)

    assert _let_go(made) == ["a-001"]
    assert made.releases[0].reason is Reason.SERVICES_FIRST
    assert made.helped == {"uid-s0"}


def test_room_that_is_coming_is_not_made_again() -> None:
    """A trainer that is leaving already is enough."""
    pods = [*trainers(_A, ["n0"]), trainer(_A, 5, "n0", deleting=True), service("s", 5)]

    assert _plan([node("n0", 10)], [_A], pods).empty


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

    def helped(times: int, ago_s: float) -> bool:
        history = History(helped={"uid-s": (times, NOW_S - ago_s)})
        return not _plan([node("n0", 10)], [_A], pods, history).empty

    assert not helped(1, 9.0)
    assert helped(1, 10.0)
    assert not helped(3, 39.0)
    assert helped(3, 40.0)
    assert helped(1000, 640.0)


def test_gated_pods_want_nothing_yet() -> None:
    """A pod with scheduling gates is not waiting for room."""
    pods = [*trainers(_A, ["n0"]), service("s", 5, gated=True)]

    made = _plan([node("n0", 10)], [_A], pods)

    assert [create.count for create in made.creates] == [1]


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

    made = _plan([node("n0", 20)], [_A, _B], pods)

    assert [release.reason for release in made.releases] == [Reason.FAIR_SHARE]


def test_during_a_burst_nothing_moves_for_fairness() -> None:
    """Services decide first what there is to share."""
    pods = [*trainers(_A, ["n0"] * 5), *trainers(_B, ["n0"])]

    made = _plan(
        [node("n0", 30), node("n1", 3)], [_A, _B], [*pods, service("s", 3, nominated="n1")]
    )

    assert made.empty
    assert len(_plan([node("n0", 30)], [_A, _B], pods).releases) == 1


def test_room_made_for_services_is_not_promised_twice() -> None:
    """A new job is admitted only if its minimum fits beside the services that trainers leave for."""
    new = job("new", 1, 1, cpu=10, created_s=LONG_AGO_S)
    pods = [*trainers(_A, ["n0", "n0", "n0"]), service("s", 5)]

    made = _plan([node("n0", 15)], [_A, new], pods)

    assert len(made.releases) == 1
    assert not made.creates


def test_the_cheapest_node_is_asked_again_after_each_pod() -> None:
    """Each node gives until another is cheaper: 4 services need 2 nodes' surplus, not 4."""
    pods = trainers(_A, ["n0", "n1", "n1", "n2", "n2", "n3"])
    pods += [service(f"s{i}", 5) for i in range(4)]

    made = _plan([node(f"n{i}", 10) for i in range(4)], [_A], pods)

    # n0 and n3 have 5 free each: two services go there, the other two need one trainer each.
    assert len(made.releases) == 2
    assert {release.node for release in made.releases} <= {"n1", "n2", "n3"}


def test_services_larger_than_a_trainer_take_several() -> None:
    """All victims of one service are on one node."""
    pods = [*trainers(_A, ["n0", "n0", "n0", "n1", "n1"]), service("s", 10)]

    made = _plan([node("n0", 15), node("n1", 10)], [_A], pods)

    assert [release.node for release in made.releases] in (["n0", "n0"], ["n1", "n1"])


def test_unschedulable_services_of_several_shapes_share_what_is_there() -> None:
    """Those of higher priority are placed first."""
    pods = [*trainers(_A, ["n0", "n0"]), service("low", 5), service("high", 4, priority=100)]

    made = _plan([node("n0", 10)], [_A], pods)

    assert made.helped == {"uid-high"}
