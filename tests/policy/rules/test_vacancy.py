"""Surplus leaves nodes that nothing else needs, so that an autoscaler can remove them."""

from dataclasses import replace

from policy.cluster.snapshot import Constraints, Pod, Requirement
from policy.document.model import Autoscaling, Policy, Reserve
from policy.names import Tier
from policy.planning.plan import History, Plan
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import NOW_S, cluster_state, job, node, service, trainer

_POLICY = Policy(
    reserve=Reserve(max_load={}), autoscaling=Autoscaling(vacate={"pool": "spot-*", "a": "b"})
)
_NODE = node("n0", 20, labels={"pool": "spot-1", "a": "b"})
_JOB = job("net", 1, 9)
_GUARANTEED = trainer(_JOB, 0, "n1", Tier.GUARANTEED)
_SURPLUS = trainer(_JOB, 1, "n0")
_LONG = History(unneeded_since={"n0": NOW_S - 60.0})


def _plan(*pods: Pod, history: History = _LONG, policy: Policy = _POLICY) -> Plan:
    nodes = [_NODE, node("n1", 5, labels={"pool": "spot-1"})]
    return plan(cluster_state(nodes, [_JOB], [_GUARANTEED, *pods]), policy, NOW_S, history)


def test_surplus_leaves_a_node_that_nothing_else_needs() -> None:
    """And none is added to it, though it has room."""
    new_plan = _plan(_SURPLUS)

    assert [(r.uid, r.reason) for r in new_plan.releases] == [
        (_SURPLUS.uid, Reason.NODE_NOT_NEEDED)
    ]
    assert new_plan.releases[0].detail == "only surplus trainers used its node for 60 s"
    assert not new_plan.creates


def test_it_does_so_after_a_while() -> None:
    """What needs the node next may come soon; until then no surplus is added either."""
    new_plan = _plan(_SURPLUS, history=History(unneeded_since={"n0": NOW_S - 59.0}))

    assert new_plan.empty
    assert new_plan.unneeded == {"n0"}


def test_a_node_that_is_needed_is_filled() -> None:
    """By a service here; a pod that is going, or of a DaemonSet, does not count."""
    to_one_node = Constraints(terms=((Requirement("metadata.name", "In", ("n0",)),),))
    daemon = service("log", 1, "n0", constraints=to_one_node)
    leaving = service("old", 1, "n0", deleting=True)

    assert _plan(_SURPLUS, service("web", 1, "n0")).creates
    assert not _plan(_SURPLUS, daemon, leaving).creates


def test_a_guaranteed_trainer_that_avoids_other_nodes_needs_its_node() -> None:
    """It names a node as the pods of a DaemonSet do, but one where it does not run."""
    away = Constraints(terms=((Requirement("metadata.name", "NotIn", ("n2",)),),))
    careful = trainer(_JOB, 2, "n0", Tier.GUARANTEED, constraints=away)

    assert _plan(_SURPLUS, careful).creates


def test_other_nodes_are_filled_whoever_needs_them() -> None:
    """Nodes are vacated only where the policy says so."""
    other = Autoscaling(vacate={"pool": "on-demand", "a": "b"})

    assert _plan(_SURPLUS, policy=Policy()).creates
    assert _plan(_SURPLUS, policy=replace_autoscaling(other)).creates
    assert not _plan(_SURPLUS, policy=replace_autoscaling(other)).unneeded


def test_a_missing_minimum_keeps_its_surplus() -> None:
    """It counts towards the minimum until the guaranteed trainer is back."""
    wants_two = replace(_JOB, min_trainers=2)
    state = cluster_state([_NODE], [wants_two], [_SURPLUS, trainer(wants_two, 2, "n0")])

    new_plan = plan(state, _POLICY, NOW_S, _LONG)

    assert not [r for r in new_plan.releases if r.reason is Reason.NODE_NOT_NEEDED]


def replace_autoscaling(autoscaling: Autoscaling) -> Policy:
    """The policy with other settings of autoscaling."""
    return _POLICY.model_copy(update={"autoscaling": autoscaling})
