"""Minimums that fit nowhere make an autoscaled cluster grow."""

from dataclasses import replace

import pytest

from policy.cluster.snapshot import Job, Node, Phase, Pod
from policy.document.model import Autoscaling, NodeRequests, Policy, Reserve
from policy.document.queue_model import Quota
from policy.names import NodeRequest, Tier
from policy.planning.plan import Create, History, Plan
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

_PENDING = Autoscaling(mode=NodeRequests.PENDING_PODS, max_jobs=1)
_POLICY = Policy(reserve=Reserve(max_load={}), autoscaling=_PENDING)
_NEW = job("new", 2, 9)
_WAITED = History(short_since={_NEW.uid: NOW_S - 30.0})


def _plan(
    nodes: list[Node],
    jobs: list[Job],
    pods: list[Pod],
    history: History = _WAITED,
    policy: Policy = _POLICY,
) -> Plan:
    return plan(cluster_state(nodes, jobs, pods), policy, NOW_S, history)


def _pending(number: int, age_s: float = 10.0, owner: Job = _NEW, where: str = "") -> Pod:
    return trainer(
        owner,
        number,
        where,
        Tier.GUARANTEED,
        node_request=NodeRequest.START,
        created_s=NOW_S - age_s,
    )


def _requests(new_plan: Plan) -> list[Create]:
    return [create for create in new_plan.creates if create.node_request]


@pytest.mark.parametrize("nodes", [[], [node("n0", 2)]], ids=["no node", "too small"])
def test_a_minimum_that_fits_no_node_becomes_pending_pods(nodes: list[Node]) -> None:
    """Exactly the minimum, without a planned node; the surplus of its maximum is not created."""
    new_plan = _plan(nodes, [_NEW], [])

    assert new_plan.creates == (
        Create(
            _NEW.key,
            Tier.GUARANTEED,
            ("", ""),
            Reason.NODES_REQUESTED,
            node_request=NodeRequest.START,
        ),
    )
    assert new_plan.jobs[0].reason is Reason.NODES_REQUESTED
    assert new_plan.jobs[0].detail.endswith("for an autoscaler to add nodes for 2 pending pods")


def test_a_requested_node_is_no_avoided_one() -> None:
    """What frees itself on a node where trainers of the job fail is not for its new ones."""
    failed = trainer(_NEW, 0, "n0", phase=Phase.FAILED, ran_s=1.0, ended_s=NOW_S - 9.0)
    busy = trainer(_NEW, 1, "n1", Tier.GUARANTEED)

    pods = [failed, busy, service("web", 6, "n0")]
    new_plan = _plan([node("n0", 9), node("n1", 6)], [_NEW], pods)

    assert [create.avoided_nodes for create in _requests(new_plan)] == [("n0",)]


def _avoiding(
    history: History = _WAITED,
    policy: Policy = _POLICY,
    others: tuple[Job, ...] = (),
    owner: Job = _NEW,
) -> Plan:
    """A job of two, one of which failed on n0: there is room on that node alone."""
    failed = trainer(owner, 0, "n0", phase=Phase.FAILED, ran_s=1.0, ended_s=NOW_S - 15.0)
    busy = trainer(owner, 1, "n1", Tier.GUARANTEED)
    asking = [_pending(5, owner=other) for other in others]
    nodes = [node("n0", 14), node("n1", 6)]
    return _plan(nodes, [owner, *others], [failed, busy, *asking], history, policy)


def test_nodes_are_requested_before_an_avoided_node_is_used_again() -> None:
    """Where the policy has an autoscaler; the trainer failed there 15 s ago."""
    young = History(short_since={_NEW.uid: NOW_S - 29.0})

    assert _avoiding(young).empty
    assert _avoiding(History()).empty
    (request,) = _avoiding().creates
    assert (request.nodes, request.avoided_nodes) == (("",), ("n0",))


def test_where_no_nodes_come_an_avoided_node_is_used() -> None:
    """After a request in vain, while other jobs have all turns, and without an autoscaler."""
    vain = History(vain_requests={_NEW.uid: (1, NOW_S - 9.0)})
    other = job("other", 1, 1, created_s=1.0)
    fixed = Policy(reserve=Reserve(max_load={}))

    for new_plan in (_avoiding(vain), _avoiding(others=(other,)), _avoiding(policy=fixed)):
        assert [(c.job, c.nodes) for c in new_plan.creates] == [(_NEW.key, ("n0",))]


def test_a_queue_without_an_autoscaler_uses_an_avoided_node_at_once() -> None:
    """Whatever the mode of the cluster is."""
    settings = _PENDING.model_copy(update={"queues": {"batch": NodeRequests.NONE}})
    policy = Policy(reserve=_POLICY.reserve, autoscaling=settings)

    new_plan = _avoiding(History(), policy, owner=replace(_NEW, queue="batch"))

    assert [create.nodes for create in new_plan.creates] == [("n0",)]


def test_so_does_one_that_waits_for_room() -> None:
    """One of two fits: kube-scheduler places it, so nothing else is created there meanwhile."""
    other = job("z", 1, 9, created_s=NOW_S)

    new_plan = _plan([node("n0", 6)], [_NEW, other], [])

    assert [(create.job, create.nodes) for create in new_plan.creates] == [(_NEW.key, ("", ""))]


def test_the_first_trainer_that_waits_takes_room_for_its_master_too() -> None:
    """5 CPU and 2 of the master are taken of 8; beside the second trainer there is no other master."""
    mastered = replace(_NEW, master=True, master_requests=shape(2))
    others = [job(f"z{cpu}", 1, 1, cpu=cpu, created_s=NOW_S - cpu) for cpu in (3, 1)]

    new_plan = _plan([node("n0", 8)], [mastered, *others], [])

    assert {create.job: create.nodes for create in new_plan.creates} == {
        mastered.key: ("", ""),
        "ml/z1": ("n0",),
    }


def test_without_the_policy_nothing_is_requested() -> None:
    """The default: a cluster of fixed size gains nothing by pending pods."""
    assert _plan([], [_NEW], [], policy=Policy()).empty


def test_a_queue_can_choose_for_itself() -> None:
    """The mode of the job's queue comes before that of the cluster."""
    only_batch = Autoscaling(queues={"batch": NodeRequests.PENDING_PODS})
    policy = Policy(autoscaling=only_batch)

    assert _plan([], [_NEW], [], policy=policy).empty
    assert _requests(_plan([], [replace(_NEW, queue="batch")], [], policy=policy))


def test_nodes_are_requested_after_a_while() -> None:
    """Capacity that is about to be free needs no new node."""
    young = History(short_since={_NEW.uid: NOW_S - 29.0})

    assert not _requests(_plan([], [_NEW], [], young))
    assert _plan([], [_NEW], [], History()).short == {_NEW.uid}


def test_only_so_many_jobs_wait_for_nodes() -> None:
    """The oldest first; the others wait for their turn without pods."""
    old = job("old", 2, 9, created_s=1.0)
    waited = History(short_since=dict.fromkeys((_NEW.uid, old.uid), NOW_S - 99.0))

    new_plan = _plan([], [_NEW, old], [], waited)
    next_plan = _plan([], [_NEW, old], [_pending(0, owner=old), _pending(1, owner=old)], waited)

    assert [create.job for create in _requests(new_plan)] == [old.key]
    assert next_plan.empty


@pytest.mark.parametrize(
    ("turns", "vain", "first"),
    [
        pytest.param(1, ["bad0"], ["bad1"], id="one in vain"),
        pytest.param(1, ["bad0", "bad1"], ["new"], id="two in vain"),
        pytest.param(2, [], ["bad0", "far"], id="one of each namespace"),
    ],
)
def test_jobs_that_ask_in_vain_leave_the_turns_to_others(
    turns: int, vain: list[str], first: list[str]
) -> None:
    """Those without a request in vain come first, and before that each namespace has one."""
    bad = [job(f"bad{i}", 2, 9, created_s=i + 1.0) for i in range(2)]
    jobs = [*bad, _NEW, *([job("far", 2, 9, namespace="z")] if turns > 1 else ())]
    history = History(
        short_since=dict.fromkeys((owner.uid for owner in jobs), NOW_S - 99.0),
        vain_requests={f"uid-{name}": (1, NOW_S - 9_999.0) for name in vain},
    )
    settings = _PENDING.model_copy(update={"max_jobs": turns})
    policy = Policy(reserve=_POLICY.reserve, autoscaling=settings)

    new_plan = _plan([], jobs, [], history, policy)

    assert [create.job.split("/")[1] for create in _requests(new_plan)] == first


def test_pods_that_wait_for_nodes_stay() -> None:
    """Their job is given no surplus meanwhile, though it counts its minimum as created."""
    new_plan = _plan([node("n0", 4)], [_NEW], [_pending(0), _pending(1)])

    assert new_plan.empty
    assert new_plan.jobs[0].reason is Reason.NODES_REQUESTED


def test_a_new_node_is_for_those_that_wait() -> None:
    """Its capacity is reserved for them; only what is more than that becomes surplus of others."""
    other = job("other", 1, 9, created_s=NOW_S - 1.0)
    running = trainer(other, 0, "n0", Tier.GUARANTEED)

    new_plan = _plan(
        [node("n0", 5), node("n1", 16)], [_NEW, other], [_pending(0), _pending(1), running]
    )

    assert [(create.job, create.nodes) for create in new_plan.creates] == [(other.key, ("n1",))]


def test_once_all_have_nodes_the_job_grows() -> None:
    """Like any other."""
    started = [_pending(0, where="n0"), _pending(1, where="n0")]

    new_plan = _plan([node("n0", 15)], [_NEW], started)

    assert [(create.tier, create.nodes) for create in new_plan.creates] == [(Tier.SURPLUS, ("n0",))]


def test_what_is_missing_of_a_request_is_added() -> None:
    """The API server refused one of the pods."""
    (create,) = _requests(_plan([], [_NEW], [_pending(0)], History()))

    assert (create.count, create.node_request) == (1, NodeRequest.START)


def test_a_start_is_taken_back_whole_after_the_timeout() -> None:
    """Half a minimum would hold capacity; all-or-nothing holds again."""
    half = [_pending(0, 1300, where="n0"), _pending(1, 1300)]

    new_plan = _plan([node("n0", 6)], [_NEW], half)

    assert {release.uid for release in new_plan.releases} == {pod.uid for pod in half}
    assert {release.reason for release in new_plan.releases} == {Reason.NODES_NOT_ADDED}
    assert new_plan.gave_up == {_NEW.uid}
    assert not new_plan.creates


def test_the_next_request_comes_after_a_pause() -> None:
    """5 minutes, which double with each request in vain."""

    def requested(number: int, ago_s: float) -> bool:
        vain = {_NEW.uid: (number, NOW_S - ago_s)}
        history = replace(_WAITED, vain_requests=vain)
        return bool(_requests(_plan([], [_NEW], [], history)))

    assert not requested(1, 299)
    assert requested(1, 301)
    assert not requested(2, 599)
    assert not requested(20, 3599)
    assert requested(20, 3601)


def test_pods_go_at_once_where_the_policy_no_longer_wants_them() -> None:
    """That is not a request in vain."""
    new_plan = _plan([], [_NEW], [_pending(0), _pending(1)], policy=Policy())

    assert len(new_plan.releases) == 2
    assert not new_plan.gave_up


def test_a_replacement_that_finds_no_node_leaves_the_others_alone() -> None:
    """The job runs, with less than its minimum."""
    running = trainer(_NEW, 0, "n0", Tier.GUARANTEED)
    (create,) = _requests(_plan([node("n0", 5)], [_NEW], [running]))
    waiting = replace(_pending(1, 1300), node_request=NodeRequest.REPLACEMENT)

    new_plan = _plan([node("n0", 5)], [_NEW], [running, waiting])

    assert (create.count, create.node_request) == (1, NodeRequest.REPLACEMENT)
    assert [release.uid for release in new_plan.releases] == [waiting.uid]


def test_trainers_on_a_cordoned_node_are_replaced_on_a_new_one() -> None:
    """So that a drain can go on where no other node has room."""
    running = [trainer(_NEW, i, "n0", Tier.GUARANTEED) for i in range(2)]

    (create,) = _requests(_plan([node("n0", 10, unschedulable=True)], [_NEW], running))

    assert create.count == 2


def test_parameter_servers_of_a_start_wait_too() -> None:
    """They are part of the gang, and are taken back with it."""
    served = replace(_NEW, servers=servers(2))
    started = _plan([], [served], [])
    waiting = [
        server(served, i, node_request=NodeRequest.START, created_s=NOW_S - 1300) for i in range(2)
    ]

    ended = _plan([], [served], [_pending(0, 10), _pending(1, 10), *waiting])

    assert started.server_creates[0].nodes == ("", "")
    assert len(_requests(started)) == 1
    assert len(ended.releases) == 2
    assert {release.pod for release in ended.server_releases} == {pod.name for pod in waiting}


def test_a_start_whose_servers_find_no_room_is_requested() -> None:
    """Its trainers would fit, and are created with them."""
    served = replace(_NEW, servers=servers(1, cpu=20))

    new_plan = _plan([node("n0", 12)], [served], [])

    assert [create.count for create in _requests(new_plan)] == [2]
    assert new_plan.server_creates[0].nodes == ("",)


def test_servers_that_are_being_deleted_are_not_deleted_twice() -> None:
    """Nor does a start wait for them."""
    served = replace(_NEW, servers=servers(1))
    gone = server(served, 0, node_request=NodeRequest.START, deleting=True)

    new_plan = _plan([], [served], [_pending(0, 1300), _pending(1, 1300), gone])

    assert not new_plan.server_releases
    assert len(new_plan.releases) == 2


def test_a_quota_is_no_reason_for_nodes() -> None:
    """More nodes would not help: neither the one used up nor the one too small for the minimum."""
    quota = Quota(namespace="ml", requests={"cpu": "8"})
    policy = _POLICY.model_copy(update={"quotas": (quota,)})

    assert _plan([], [_NEW], [], policy=policy).empty


def test_pods_of_a_stopped_job_are_only_stopped() -> None:
    """For that reason, not for nodes that did not come."""
    new_plan = _plan([], [replace(_NEW, suspended=True)], [_pending(0, 1300)])

    assert [release.reason for release in new_plan.releases] == [Reason.JOB_STOPPED]


def test_jobs_of_the_built_in_controller_request_nothing() -> None:
    """That controller creates their pods, which wait by themselves."""
    assert _plan([], [replace(_NEW, managed=False)], []).empty


def test_a_lost_master_does_not_wait_for_a_node() -> None:
    """A live trainer makes way for it, as on any full cluster; the other trainer waits."""
    led = replace(_NEW, master=True, requests={"cpu": 5000, "pods": 1})
    running = trainer(led, 0, "n0", Tier.GUARANTEED)

    new_plan = _plan([node("n0", 5.5)], [led], [running])

    with_master = [create for create in new_plan.creates if create.master]
    started = _requests(_plan([], [led], []))

    assert [(create.nodes, create.node_request) for create in with_master] == [(("n0",), None)]
    assert [create.master for create in started] == [True]
    assert [create.master for create in _requests(new_plan)] == [False]
