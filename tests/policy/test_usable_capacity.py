from dataclasses import replace
from typing import Any

import pytest

from policy.cluster.snapshot import Constraints, Node, Pod, Taint, Toleration
from policy.document.model import NodePool, Policy, Reserve
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
    trainer,
    trainers,
)

_GPU = Taint("nvidia.com/gpu", "", "NoSchedule")
_TOLERANT = Constraints(tolerations=(Toleration("nvidia.com/gpu", "Exists", "", ""),))
_POLICY = Policy(reserve=Reserve(max_load={"cpu": 0.9}))


def _target(nodes: list[Node], pods: list[Pod], policy: Policy = _POLICY, **fields: Any) -> int:
    """The target of a job that could fill 200 CPU of 1-CPU trainers, in the end."""
    owner = job("a", 1, 300, cpu=1, **fields)
    running = trainers(owner, [f"n{number % 10}" for number in range(177)])
    return plan(cluster_state(nodes, [owner], [*running, *pods]), policy, NOW_S).jobs[0].target


@pytest.mark.parametrize(
    ("useless", "policy"),
    [
        ([], _POLICY),
        ([node("x", 40, unschedulable=True)], _POLICY),
        ([node("x", 40, ready=False)], _POLICY),
        ([node(f"x{n}", 40, taints=(_GPU,)) for n in range(3)], _POLICY),
        (
            [node("x", 4_000, labels={"type": "virtual-kubelet"})],
            _POLICY.model_copy(
                update={"node_pools": (NodePool(name="p", labels={"real": "yes"}),)}
            ),
        ),
    ],
    ids=["none", "cordoned", "not ready", "tainted", "outside the pools"],
)
def test_the_reserve_is_a_share_of_the_nodes_that_trainers_may_use(
    useless: list[Node], policy: Policy
) -> None:
    """200 usable CPU and a load of 0.9 are 180 trainers, whatever other nodes the cluster has."""
    usable = [node(f"n{number}", 20, labels={"real": "yes"}) for number in range(10)]

    assert _target([*usable, *useless], [], policy) == 180


@pytest.mark.parametrize(
    ("fields", "target"),
    [
        ({"unready_s": NOW_S - 59}, 180),
        ({"unready_s": NOW_S - 60}, 162 + 17),
        ({"unready_s": NOW_S - 10, "silent": True}, 162 + 17),
    ],
    ids=["restarts", "not ready for a minute", "silent"],
)
def test_a_node_counts_until_it_is_lost(fields: dict[str, Any], target: int) -> None:
    """A restart of its kubelet takes seconds. The 17 trainers of a lost node are no load of others."""
    nodes = [node(f"n{number}", 20) for number in range(9)]
    taint = Taint("node.kubernetes.io/not-ready", "", "NoExecute")
    nodes.append(node("n9", 20, ready=False, taints=(taint,), **fields))

    assert _target(nodes, []) == target


def test_the_time_alone_takes_a_node_out() -> None:
    """Nothing of it changes when it has been not ready for too long."""
    cluster = cluster_state([node("n0", 10), node("n1", 20, ready=False, unready_s=NOW_S)])

    assert cluster.usable(now_s=NOW_S + 59).allocatable["cpu"] == 30_000
    assert cluster.usable(now_s=NOW_S + 60).allocatable["cpu"] == 10_000


def test_growth_in_place_on_a_node_that_trainers_may_not_use_takes_nothing_of_the_reserve() -> None:
    """A service on a cordoned node may become larger there; the other nodes keep their load."""
    usable = [node(f"n{number}", 20) for number in range(10)]
    growing = service("db", 30, "x", resize={"cpu": 20_000})

    assert _target([*usable, node("x", 40, unschedulable=True)], [growing]) == 180


def test_pods_on_nodes_that_trainers_may_not_use_take_nothing_of_the_reserve() -> None:
    """Load counts on the nodes that capacity is counted on: 30 CPU of a tainted node are not."""
    nodes = [*(node(f"n{number}", 20) for number in range(10)), node("x", 40, taints=(_GPU,))]
    pinned = service("agent", 6, constraints=_TOLERANT)

    assert _target(nodes, [service("old", 30, "x"), service("going", 4, "x", deleting=True)]) == 180
    assert _target(nodes, [service("full", 34, "x"), pinned]) == 180


def test_a_tainted_node_counts_where_a_job_tolerates_it() -> None:
    """A pool of tainted GPU nodes is capacity of the jobs that are made for it."""
    nodes = [node(f"n{number}", 20, taints=(_GPU,)) for number in range(10)]

    assert _target(nodes, [], constraints=_TOLERANT) == 180


def test_sums_follow_what_jobs_tolerate_and_the_pools() -> None:
    """A new job, its end, and other pools change which nodes count."""
    nodes = [node("n0", 10, labels={"real": "yes"}), node("gpu", 30, taints=(_GPU,))]
    cluster = cluster_state(nodes)
    tolerant = job("a", constraints=_TOLERANT)

    assert cluster.usable().allocatable["cpu"] == 10_000
    cluster.put_job(tolerant)
    assert cluster.usable().allocatable["cpu"] == 40_000
    cluster.put_job(replace(tolerant, error="no maximum"))
    assert cluster.usable().allocatable["cpu"] == 10_000
    cluster.put_job(tolerant)
    pools = (NodePool(name="p", labels={"real": "yes"}),)
    assert cluster.usable(pools).allocatable["cpu"] == 10_000
    assert "gpu" not in cluster.usable(pools)


def test_parameter_servers_outside_the_pools_leave_the_reserve_alone() -> None:
    """Pools are for trainers; a server may be placed anywhere, and is not training's load there."""
    owner = job("a", 1, 300, cpu=1, servers=servers(1, 30))
    nodes = [node(f"n{number}", 20, labels={"real": "yes"}) for number in range(10)]
    policy = _POLICY.model_copy(
        update={"node_pools": (NodePool(name="p", labels={"real": "yes"}),)}
    )
    running = trainers(owner, [f"n{number % 10}" for number in range(177)])
    cluster = cluster_state([*nodes, node("x", 40)], [owner], running)

    new_plan = plan(cluster, policy, NOW_S)

    assert [create.nodes for create in new_plan.server_creates] == [("x",)]
    assert new_plan.jobs[0].target == 180
    cluster.put_pod(server(owner, 0, "x"))
    assert plan(cluster, policy, NOW_S).jobs[0].target == 180


def test_a_trainer_that_waited_in_vain_leaves_load_where_its_node_is_usable() -> None:
    """A trainer of a stopped job that waits for a node leaves no load that it never took."""
    owner, stopped = job("a", 1, 300, cpu=1), job("b", 1, 3, cpu=50, suspended=True)
    nodes = [node(f"n{number}", 20) for number in range(10)]
    running = trainers(owner, [f"n{number % 10}" for number in range(177)])
    cluster = cluster_state(nodes, [owner, stopped], [*running, trainer(stopped, 0)])

    new_plan = plan(cluster, _POLICY, NOW_S)

    assert [release.reason for release in new_plan.releases] == [Reason.JOB_STOPPED]
    assert new_plan.jobs[0].target == 180


@pytest.mark.parametrize("deleting", [False, True])
def test_a_pod_that_names_its_node_takes_no_more_load_than_the_node_has(*, deleting: bool) -> None:
    """Until the kubelet refuses it. It stopped the growth of all jobs, or lifted the reserve."""
    nodes = [node(f"n{number}", 20) for number in range(10)]
    huge = service("huge", 10**16, where="n9", deleting=deleting)
    owner = job("a", 1, 300, cpu=1)
    running = trainers(owner, ["n0"] * 4)
    half = Policy(reserve=Reserve(max_load={"cpu": 0.5}))
    new_plan = plan(cluster_state(nodes, [owner], [*running, huge]), half, NOW_S)
    while new_plan.creates:
        count = len(running)
        more = sum(create.count for create in new_plan.creates)
        running += [trainer(owner, count + n, f"n{(count + n) // 18}") for n in range(more)]
        new_plan = plan(cluster_state(nodes, [owner], [*running, huge]), half, NOW_S)

    assert new_plan.releases == ()
    assert len(running) == 80
