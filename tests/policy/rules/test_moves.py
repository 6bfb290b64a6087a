"""Moves of trainers between jobs while others grow, and those that are under way already."""

from policy.cluster.snapshot import Job, Node, Pod
from policy.document.model import Policy, Reserve, Sizes, Stability
from policy.planning.plan import History, Plan
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import NOW_S, cluster_state, job, node, trainer, trainers

_A, _B = job("a", 1, 20), job("b", 1, 20)
_FULL = [node("n0", 30)]


def _plan(
    nodes: list[Node], jobs: list[Job], pods: list[Pod], history: History | None = None
) -> Plan:
    policy = Policy(reserve=Reserve(max_load={}))
    return plan(cluster_state(nodes, jobs, pods), policy, NOW_S, history)


def _split(first: int, second: int) -> list[Pod]:
    """Trainers of the two jobs on one node."""
    return [*trainers(_A, ["n0"] * first), *trainers(_B, ["n0"] * second)]


def test_moves_do_not_wait_for_the_growth_of_other_namespaces() -> None:
    """A job that is always growing, on a node of its own, does not let a rich one keep what it has."""
    growing = job("growing", 1, 1000, cpu=0.1, namespace="other")
    nodes = [*_FULL, node("n1", 4)]
    pods = [*_split(5, 1), *trainers(growing, ["n1"])]

    new_plan = _plan(nodes, [_A, _B, growing], pods)

    assert new_plan.growing == {growing.key}
    assert [release.reason for release in new_plan.releases] == [Reason.FAIR_SHARE]


def test_growth_of_others_moves_no_more_than_is_needed() -> None:
    """What leaves already is expected for the job that it was released for."""
    growing = job("growing", 1, 1000, cpu=0.1, namespace="other")
    nodes = [*_FULL, node("n1", 4)]
    leaving = [trainer(_A, 8 + i, "n0", deleting=True) for i in range(2)]
    pods = [*_split(3, 1), *trainers(growing, ["n1"]), *leaving]

    assert _plan(nodes, [_A, _B, growing], pods).releases == ()


def test_moves_are_remembered_while_their_trainers_exist() -> None:
    """Those of this plan and of earlier ones; releases for other reasons are not."""
    stopped = job("stopped", suspended=True)
    pods = [*_split(5, 1), *trainers(stopped, ["n1"])]
    gone_or_not = History(moved=frozenset({"gone", "b-000"}))

    new_plan = _plan([*_FULL, node("n1", 5)], [_A, _B, stopped], pods, history=gone_or_not)

    assert new_plan.moved == {"a-004", "b-000"}
    assert len(new_plan.releases) == 2


def test_a_donor_that_would_give_too_much_for_a_whole_step_gives_nothing() -> None:
    """One trainer would leave it at the receiver's share, and the step needs two."""
    stepwise = Policy(
        reserve=Reserve(max_load={}),
        sizes=(Sizes(namespaces=("ml",), step=2),),
        stability=Stability(max_moves=1.0),
    )
    receiver, donor = job("a", 2, 8, cpu=1), job("b", 1, 9, cpu=1, namespace="other")
    pods = [*trainers(receiver, ["n0"] * 2), *trainers(donor, ["n0"] * 5)]

    state = cluster_state([node("n0", 7)], [receiver, donor], pods)

    assert plan(state, stepwise, NOW_S).releases == ()
