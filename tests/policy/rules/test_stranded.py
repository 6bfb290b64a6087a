"""Guaranteed trainers on nodes that are drained or lost are replaced before they end."""

from dataclasses import replace
from typing import Any

import pytest

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Constraints, Job, Node, Phase, Pod, Snapshot, Taint, Toleration
from policy.document.model import Policy
from policy.names import Role, Tier
from policy.planning.plan import History, Plan
from policy.planning.planner import plan
from policy.planning.recent_history import RecentHistory

TRAINER = {"cpu": 5000, "pods": 1}
NOW_S = 1000.0
TOLERANT = Constraints(tolerations=(Toleration("dedicated", "Exists", "", ""),))


def cluster(constraints: Constraints = Constraints(), **fields: Any) -> ClusterState:  # noqa: B008 - frozen
    """Two nodes of two slots; both guaranteed trainers of the one job on the first."""
    room = {"cpu": 10_500, "pods": 110}
    nodes = (Node("n0", room, **fields), Node("n1", room))
    job = Job("ns", "a", "uid-a", 2, 2, TRAINER, constraints)
    pods = tuple(
        Pod(
            "ns",
            f"a-trainer-{i}",
            f"uid-{i}",
            TRAINER,
            -8,
            node="n0",
            phase=Phase.RUNNING,
            ready=True,
            owner_uid="uid-a",
            job="a",
            role=Role.TRAINER,
            tier=Tier.GUARANTEED,
            trainer_id=i,
            constraints=constraints,
        )
        for i in range(2)
    )
    return ClusterState.of(Snapshot(nodes, pods, (job,)))


def test_a_plan_looks_at_no_node_that_nothing_is_wrong_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are thousands, and each plan would look at all of them again."""
    state = cluster()
    for i in range(2, 100):
        state.put_node(Node(f"n{i}", {"cpu": 500, "pods": 110}))
    state.put_node(Node("silent", {"cpu": 500, "pods": 110}, ready=False, silent=True))
    plan(state, Policy(), NOW_S)
    looked_at = set()
    is_lost = Node.is_lost

    def noted(place: Node, now_s: float) -> bool:
        looked_at.add(place.name)
        return is_lost(place, now_s)

    monkeypatch.setattr(Node, "is_lost", noted)
    plan(state, Policy(), NOW_S)

    assert looked_at == {"silent"}


def _taint(key: str, effect: str = "NoSchedule") -> dict[str, Any]:
    return {"taints": (Taint(key, "", effect),)}


@pytest.mark.parametrize(
    "fields",
    [
        {"unschedulable": True},
        _taint("karpenter.sh/disrupted"),
        _taint("ToBeDeletedByClusterAutoscaler"),
        _taint("maintenance", "NoExecute"),
        _taint("node.kubernetes.io/out-of-service", "NoExecute"),
        {"ready": False, "silent": True},
        {"ready": False, "unready_s": NOW_S - 60},
    ],
)
def test_a_node_that_is_drained_or_lost_makes_replacements_first(fields: dict[str, Any]) -> None:
    """Both guaranteed trainers of the node get a replacement, none is released."""
    new_plan = plan(cluster(**fields), Policy(), NOW_S)

    assert [(c.tier, c.count) for c in new_plan.creates] == [(Tier.GUARANTEED, 2)]
    assert new_plan.releases == ()


def _replaced(phases: tuple[Phase, Phase], max_trainers: int = 2, **fields: Any) -> ClusterState:
    """The cluster with two replacements on the second node."""
    state = cluster(**fields)
    state.put_job(replace(state.jobs["ns/a"], max_trainers=max_trainers))
    for i, phase in zip((2, 3), phases, strict=True):
        pod = replace(state.pods["uid-0"], uid=f"uid-{i}", name=f"a-trainer-{i}", node="n1")
        state.put_pod(replace(pod, trainer_id=i, phase=phase))
    return state


def test_the_replacements_stay_while_the_cordon_lasts() -> None:
    """Where they run, the stranded trainers above the job's maximum go; the replacements never do."""
    state = _replaced((Phase.RUNNING, Phase.RUNNING), unschedulable=True)
    releases = plan(state, Policy(), NOW_S).releases
    for release in releases:
        state.drop_pod(release.uid)

    assert {release.uid for release in releases} == {"uid-0", "uid-1"}
    assert plan(state, Policy(), NOW_S).empty
    state.put_node(Node("n0", {"cpu": 10_500, "pods": 110}))
    assert plan(state, Policy(), NOW_S).empty


def test_stranded_trainers_stay_until_all_of_their_replacements_run() -> None:
    """The job would have less than its minimum."""
    state = _replaced((Phase.RUNNING, Phase.PENDING), unschedulable=True)

    assert plan(state, Policy(), NOW_S).releases == ()


def test_stranded_trainers_below_the_maximum_stay_where_nobody_else_wants_their_room() -> None:
    """They are surplus then, as others on a cordoned node: whoever drains it ends them."""
    state = _replaced((Phase.RUNNING, Phase.RUNNING), max_trainers=4, unschedulable=True)

    assert plan(state, Policy(), NOW_S).empty


@pytest.mark.parametrize(
    "fields",
    [
        {},
        _taint("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule"),
        _taint("node.kubernetes.io/memory-pressure"),
        {"ready": False, "unready_s": NOW_S - 59} | _taint("node.kubernetes.io/not-ready"),
    ],
)
def test_on_other_nodes_nothing_is_made(fields: dict[str, Any]) -> None:
    """A soft taint or a condition that comes and goes is no drain."""
    assert plan(cluster(**fields), Policy(), NOW_S).empty


def test_a_tolerated_taint_is_no_drain() -> None:
    """The job's pods may start there at any time."""
    tainted = _taint("dedicated")

    assert plan(cluster(TOLERANT, **tainted), Policy(), NOW_S).empty
    assert plan(cluster(**tainted), Policy(), NOW_S).creates


_AGENT = _taint("node.cilium.io/agent-not-ready")


@pytest.mark.parametrize(
    ("since", "replacements"),
    [
        pytest.param({}, 0, id="new"),
        pytest.param({("n0", "node.cilium.io/agent-not-ready"): NOW_S - 59}, 0, id="seconds"),
        pytest.param({("n0", "node.cilium.io/agent-not-ready"): NOW_S - 60}, 2, id="a minute"),
        pytest.param(None, 2, id="before the first plan"),
    ],
)
def test_a_taint_of_seconds_is_no_drain(
    since: dict[tuple[str, str], float] | None, replacements: int
) -> None:
    """A network agent that restarts taints its node meanwhile."""
    new_plan = plan(cluster(**_AGENT), Policy(), NOW_S, History(tainted_since=since))

    assert sum(create.count for create in new_plan.creates) == replacements


@pytest.mark.parametrize(
    "fields",
    [
        {"unschedulable": True},
        _taint("karpenter.sh/disrupted"),
        _taint("ToBeDeletedByClusterAutoscaler"),
        _taint("maintenance", "NoExecute"),
    ],
)
def test_a_drain_counts_at_once(fields: dict[str, Any]) -> None:
    """Its taints are known, or end pods by themselves."""
    new_plan = plan(cluster(**fields), Policy(), NOW_S, History(tainted_since={}))

    assert sum(create.count for create in new_plan.creates) == 2
    assert new_plan.tainted == frozenset()


def test_plans_remember_since_when_a_taint_is_there() -> None:
    """One that was there before the first plan counts as old; one that went and came, as new."""
    recent, tainted = RecentHistory(), plan(cluster(**_AGENT), Policy(), NOW_S)
    key = ("n0", "node.cilium.io/agent-not-ready")
    since = []
    for second, new_plan in enumerate([tainted, Plan(), tainted, tainted]):
        recent.record(new_plan, NOW_S + second, 5.0)
        since.append(recent.history(NOW_S).tainted_since)

    assert since == [{key: 0.0}, {}, {key: NOW_S + 2}, {key: NOW_S + 2}]


def _plan_after(state: ClusterState, seconds: float) -> Plan:
    """The plan some seconds after the first one that saw the cluster like this."""
    history = RecentHistory()
    cluster_before = plan(cluster(), Policy(), NOW_S)
    history.record(cluster_before, NOW_S, 5.0)
    history.record(plan(state, Policy(), NOW_S, history.history(NOW_S)), NOW_S, 5.0)
    return plan(state, Policy(), NOW_S + seconds, history.history(NOW_S + seconds))


def test_trainers_of_a_deleted_node_are_replaced_before_kubernetes_removes_them() -> None:
    """That takes up to a minute. Not at once: the watch of nodes may be behind, or the node comes back."""
    state = cluster()
    state.drop_node("n0")

    assert _plan_after(state, 9.0).empty
    late = _plan_after(state, 10.0)
    assert [(c.tier, c.nodes) for c in late.creates] == [(Tier.GUARANTEED, ("n1", "n1"))]
    assert late.releases == ()


def test_replacements_outlast_the_pods_of_a_node_that_was_lost_and_is_deleted() -> None:
    """A cloud deletes the node of a machine that is gone, some seconds after it fell silent."""
    state = cluster()
    for i in (2, 3):
        old = state.pods["uid-0"]
        state.put_pod(replace(old, uid=f"uid-{i}", name=f"a-trainer-{i}", trainer_id=i, node="n1"))
    state.drop_node("n0")

    for seconds in (1.0, 10.0):
        releases = _plan_after(state, seconds).releases
        assert {release.uid for release in releases} == {"uid-0", "uid-1"}
