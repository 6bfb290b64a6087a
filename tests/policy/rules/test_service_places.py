"""On which nodes trainers make room for services: where few go for many, and where none need to."""

from policy.cluster.snapshot import Constraints, Job, Node, Pod, Requirement
from policy.document.model import NodePool, Policy, Reserve
from policy.names import NODE_NAME, Tier
from policy.planning.planner import plan
from tests.support.builders import NOW_S, cluster_state, job, node, service, trainer, trainers

_FREE = Policy(reserve=Reserve(max_load={}))
_A, _B = job("a", 1, 9), job("b", 1, 9)


def _released(policy: Policy, nodes: list[Node], jobs: list[Job], pods: list[Pod]) -> list[str]:
    new_plan = plan(cluster_state(nodes, jobs, pods), policy, NOW_S)
    return [release.uid for release in new_plan.releases]


def test_further_trainers_that_would_go_are_counted() -> None:
    """One of 6 CPU makes room for two services, two for three: no better than one of 5 beside 1 free."""
    rich, wide = job("rich", 3, 9), job("wide", 1, 9, cpu=6)
    pods = [
        *(trainer(wide, number, "n0") for number in range(2)),
        trainer(rich, 9, "n1"),
        *(trainer(rich, number, "n2", Tier.GUARANTEED) for number in range(3)),
        *(service(f"s{number}", 3) for number in range(3)),
    ]
    nodes = [node("n0", 12), node("n1", 6), node("n2", 15)]

    first, second = _released(_FREE, nodes, [wide, rich], pods)

    assert first == "rich-009"
    assert second.startswith("wide")


def test_a_trainer_for_a_node_outside_of_the_pools_takes_no_room_there() -> None:
    """It is not expected on it: a service of lower priority fits, and no trainer goes for that."""
    pools = Policy(reserve=_FREE.reserve, node_pools=(NodePool(name="p", labels={"pool": "p"}),))
    named = Constraints(((Requirement(NODE_NAME, "In", ("n0",)),),))
    waiting = trainer(_B, 0, "", Tier.GUARANTEED, constraints=named, owner_uid="", job="")
    pods = [*trainers(_A, ["n1", "n1"]), waiting, service("low", 5, priority=-20)]
    nodes = [node("n0", 5), node("n1", 10, labels={"pool": "p"})]

    assert _released(_FREE, nodes, [_A], pods) == ["a-001"]
    assert _released(pools, nodes, [_A], pods) == []
