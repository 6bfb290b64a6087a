"""How much of a running job's minimum its queue's nominal quota covers, and what follows."""

from dataclasses import replace
from typing import Any

from policy.cluster.snapshot import Job, Node, Pod
from policy.document.model import Autoscaling, NodeRequests, Policy, Reserve
from policy.document.queue_model import Queue
from policy.names import Tier
from policy.planning.plan import History, Plan
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import NOW_S, cluster_state, job, node, service, trainer, trainers

_QUEUES = tuple(
    Queue(name=name, namespaces=("*",), nominal_quota={"cpu": "4"}) for name in ("a", "b")
)
_POLICY = Policy(reserve=Reserve(max_load={}), queues=_QUEUES)
_OWNER = job("owner", 1, 4, cpu=1, queue="a")
_BORROWER = job("borrower", 1, 9, cpu=1, queue="b")
_NODES = [node("n0", 4), node("n1", 40)]


def _plan(
    jobs: list[Job], pods: list[Pod], policy: Policy = _POLICY, nodes: list[Node] = _NODES
) -> Plan:
    return plan(cluster_state(nodes, jobs, pods), policy, NOW_S)


def _targets(new_plan: Plan) -> dict[str, int]:
    return {job_plan.key.removeprefix("ml/"): job_plan.target for job_plan in new_plan.jobs}


def _guaranteed(new_plan: Plan) -> dict[str, int]:
    """Job -> guaranteed trainers that the plan creates."""
    return {c.job: c.count for c in new_plan.creates if c.tier is Tier.GUARANTEED}


def test_a_running_job_has_as_much_of_its_minimum_as_its_queue_has() -> None:
    """Where the minimum was raised above the quota; the rest is surplus, which borrows."""
    raised = replace(_BORROWER, min_trainers=6)
    pods = trainers(raised, ["n1"] * 2)

    created = _plan([raised], pods).creates

    assert [(create.tier, create.count) for create in created] == [
        (Tier.GUARANTEED, 2),
        (Tier.SURPLUS, 4),
    ]


def test_a_running_job_below_its_minimum_says_what_its_queue_does_not_cover() -> None:
    """Its condition names the quota, not the room that there is none of to borrow."""
    raised = replace(_BORROWER, min_trainers=6)
    (short,) = _plan([raised], trainers(raised, ["n0"] * 4), nodes=[node("n0", 4)]).jobs

    assert short.reason is Reason.QUOTA_REACHED
    assert short.detail == (
        "the quota of queue b without borrowing (4 cpu) is 2 too small for 2 more trainers"
    )
    assert short.uncovered == 2


def test_a_minimum_that_is_raised_keeps_nothing_that_is_borrowed() -> None:
    """Guaranteed are those that the own quota covers; an owner has the others back, in one plan."""
    raised = replace(_BORROWER, min_trainers=7, max_trainers=8)
    pods = trainers(_BORROWER, ["n1"] * 8)
    owner = replace(_OWNER, max_trainers=4)

    alone = _plan([raised], pods)
    both = _plan([owner, raised], [*trainers(owner, ["n0"]), *pods[:7]])

    assert _guaranteed(alone) == {"ml/borrower": 3}
    assert len(alone.releases) == 3  # of surplus, above its maximum with the guaranteed ones
    returned = [r for r in both.releases if r.reason is Reason.SHARE_RETURNED]
    assert {r.job for r in returned} == {"ml/borrower"}
    assert _targets(both)["borrower"] <= 7 - 3 + 3


def test_the_oldest_job_of_a_queue_has_its_minimum_first() -> None:
    """What guaranteed trainers leave of the quota covers surplus in their stead, in the same order."""
    young = replace(_BORROWER, min_trainers=3, max_trainers=4, created_s=NOW_S - 60)
    old = replace(young, name="old", uid="uid-old", created_s=NOW_S - 90)
    one = (replace(young, min_trainers=1), replace(old, min_trainers=1))
    pods = [pod for owner in one for pod in trainers(owner, ["n1"] * 4)]

    assert _guaranteed(_plan([young, old], pods)) == {"ml/old": 2}


def test_a_stranded_guaranteed_trainer_is_replaced_in_a_full_quota() -> None:
    """The replacement takes its place, and no further part of the queue's own quota."""
    owner = replace(_OWNER, min_trainers=4, max_trainers=4)
    nodes = [replace(node("n0", 4), unschedulable=True), node("n1", 40)]
    pods = trainers(owner, ["n0", "n1", "n1", "n1"])

    assert _guaranteed(_plan([owner], pods, nodes=nodes)) == {"ml/owner": 1}

    replaced = [*pods, trainer(owner, 9, "n1", Tier.GUARANTEED)]
    raised = replace(owner, min_trainers=9, max_trainers=9)
    assert _guaranteed(_plan([raised], replaced, nodes=nodes)) == {}


def test_trainers_of_the_built_in_controller_are_guaranteed_as_far_as_covered() -> None:
    """They have no tier of their own: a raised minimum alone makes none of them."""
    plain = replace(_BORROWER, min_trainers=7, managed=False, parallelism=7)
    fields: dict[str, Any] = {"namespace": "ml", "owner_uid": plain.uid}
    pods = [service(f"plain-{i}", 1, "n1", **fields) for i in range(7)]
    owner = trainers(_OWNER, ["n0"])

    releases = _plan([_OWNER, plain], [*owner, *pods]).releases

    assert [r.reason for r in releases] == [Reason.SHARE_RETURNED] * 3


def test_a_resource_of_which_a_queue_has_too_much_stops_only_what_needs_it() -> None:
    """A lowered quota of memory is no reason for a job without memory to wait."""
    queues = (
        Queue(name="a", namespaces=("*",), nominal_quota={"cpu": "4", "memory": "1Gi"}),
        Queue(name="b", namespaces=("*",), nominal_quota={"cpu": "4", "memory": "9Gi"}),
    )
    policy = _POLICY.model_copy(update={"queues": queues})
    greedy = job("greedy", 1, 1, cpu=1, memory=4, queue="a")
    small = replace(_OWNER, max_trainers=1)

    new_plan = _plan([greedy, small], trainers(greedy, ["n1"]), policy)

    assert _targets(new_plan) == {"greedy": 1, "owner": 1}


def test_what_an_older_job_takes_of_the_quota_covers_no_younger_one() -> None:
    """Both lack one guaranteed trainer, and one more is covered; the other job goes on without."""
    old = replace(_BORROWER, min_trainers=3, max_trainers=3, created_s=NOW_S - 90)
    young = replace(old, name="young", uid="uid-young", created_s=NOW_S - 60)
    pods = [*trainers(old, ["n1"] * 2), *trainers(young, ["n1"])]

    new_plan = _plan([young, old], pods)

    assert _guaranteed(new_plan) == {"ml/borrower": 1}
    assert _targets(new_plan) == {"borrower": 3, "young": 3}  # it borrows two


def test_nodes_are_requested_for_what_is_covered() -> None:
    """An autoscaled cluster grows for no part of a minimum that its queue has no quota for."""
    old = replace(_BORROWER, min_trainers=2, max_trainers=2, created_s=NOW_S - 90)
    young = replace(old, name="young", uid="uid-young", min_trainers=4, max_trainers=4)
    policy = _POLICY.model_copy(
        update={"autoscaling": Autoscaling(mode=NodeRequests.PENDING_PODS, after_seconds=1)}
    )
    pods = [*trainers(old, ["n0"]), *trainers(young, ["n0"])]
    waited = History(short_since={young.uid: NOW_S - 600})

    state = cluster_state([node("n0", 3)], [old, young], pods)
    creates = plan(state, policy, NOW_S, waited).creates

    assert [(create.job, create.nodes) for create in creates] == [
        ("ml/borrower", ("n0",)),
        ("ml/young", ("",)),
    ]


def test_minimums_that_fall_and_rise_in_turn_gather_no_guaranteed_trainers() -> None:
    """A trainer that a lowered minimum leaves keeps its tier: it ends once others have its quota."""
    lowered = replace(_BORROWER, min_trainers=1, max_trainers=4)
    other = replace(_BORROWER, name="other", uid="uid-other", min_trainers=3, max_trainers=3)
    pods = trainers(replace(lowered, min_trainers=4), ["n1"] * 4)

    alone, both = _plan([lowered], pods), _plan([lowered, other], pods)

    assert alone.releases == ()
    assert _guaranteed(both) == {"ml/other": 3}
    assert [r.detail for r in both.releases] == [
        "the quota of queue b without borrowing (4 cpu) is 3 too small"
    ] * 3
    assert _targets(both) == {"borrower": 4, "other": 3}  # as surplus, which is returned
