from dataclasses import replace

import pytest

from policy.cluster.snapshot import Job, JobCondition, JobStatus, Node, Phase, Pod
from policy.document.model import Fairness, FairnessBy, Policy, Reserve
from policy.document.queue_model import Quota
from policy.names import Tier
from policy.planning.plan import History, Plan
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

_FREE = Policy(reserve=Reserve(max_load={}))
_JOB = job("net", 2, 2, servers=servers(2, 2))
"""Two trainers of 5 CPU and two parameter servers of 2 CPU: 14 CPU to start."""


def _plan(nodes: list[Node], jobs: list[Job], pods: list[Pod], policy: Policy = _FREE) -> Plan:
    return plan(cluster_state(nodes, jobs, pods), policy, NOW_S)


def _server_creates(new_plan: Plan) -> list[tuple[str, tuple[int, ...], tuple[str, ...]]]:
    return [(serve.job, serve.numbers, serve.nodes) for serve in new_plan.server_creates]


def _serving(owner: Job, *places: str) -> list[Pod]:
    """A server on each of the nodes, in order of index."""
    return [server(owner, number, where) for number, where in enumerate(places)]


def _created_trainers(new_plan: Plan) -> int:
    return sum(create.count for create in new_plan.creates)


def _quota(cpu: str) -> Policy:
    """A policy that allows namespace ml so much CPU."""
    quota = Quota(namespace="ml", requests={"cpu": cpu})
    return _FREE.model_copy(update={"quotas": (quota,)})


def test_a_job_starts_with_all_its_servers() -> None:
    """They are made in the plan that makes the first trainers."""
    new_plan = _plan([node("n0", 14)], [_JOB], [])

    assert _server_creates(new_plan) == [("ml/net", (0, 1), ("n0", "n0"))]
    assert _created_trainers(new_plan) == 2


def test_servers_and_minimum_start_all_or_nothing() -> None:
    """A CPU too few for the last trainer, and neither servers nor trainers are made."""
    new_plan = _plan([node("n0", 13)], [_JOB], [])

    assert new_plan.empty
    assert new_plan.jobs[0].reason is Reason.WAITING_FOR_ROOM
    assert "no capacity for 1 guaranteed trainer" in new_plan.jobs[0].detail


def test_a_start_that_fails_leaves_its_room_to_others() -> None:
    """What was looked at for servers and trainers is free again."""
    small = job("small", 1, 2, cpu=6, created_s=NOW_S)
    new_plan = _plan([node("n0", 13)], [_JOB, small], [])

    assert [(create.job, create.count) for create in new_plan.creates] == [
        ("ml/small", 1),
        ("ml/small", 1),
    ]
    assert new_plan.server_creates == ()


def test_no_room_for_servers_is_said() -> None:
    """With what they need, not what trainers need."""
    new_plan = _plan([node("n0", 3)], [_JOB], [])

    assert new_plan.empty
    assert new_plan.jobs[0].detail == "no capacity for 2 parameter servers (2 cpu each)"


def test_servers_take_the_room_of_surplus() -> None:
    """kube-scheduler preempts it, as it does for guaranteed trainers."""
    rich = job("rich", 1, 3)
    new_plan = _plan([node("n0", 18)], [rich, _JOB], trainers(rich, ["n0", "n0", "n0"]))
    tight = _plan([node("n0", 20)], [rich, _JOB], trainers(rich, ["n0", "n0", "n0"]))

    assert new_plan.empty  # 13 CPU without surplus
    assert _server_creates(tight) == [("ml/net", (0, 1), ("n0", "n0"))]


def test_a_missing_server_comes_back_before_surplus_grows() -> None:
    """Its room is taken first, under its own index."""
    elastic = replace(_JOB, max_trainers=9)
    job_pods = trainers(elastic, ["n0", "n0"])
    new_plan = _plan([node("n0", 19)], [elastic], [*job_pods, server(elastic, 0, "n0")])

    assert _server_creates(new_plan) == [("ml/net", (1,), ("n0",))]
    assert _created_trainers(new_plan) == 1  # 5 of the 7 CPU that are left; 2 are the server's


def test_a_name_that_is_taken_is_waited_for() -> None:
    """A server that leaves keeps its index until it is gone, and its room after that."""
    elastic = replace(_JOB, max_trainers=9)
    job_pods = trainers(elastic, ["n0", "n0"])
    leaving = server(elastic, 1, "n0", deleting=True)
    new_plan = _plan([node("n0", 17)], [elastic], [*job_pods, server(elastic, 0, "n0"), leaving])

    assert new_plan.empty


def test_a_server_that_waits_for_its_node_is_not_made_again() -> None:
    """kube-scheduler has it in hand."""
    job_pods = trainers(_JOB, ["n0", "n0"])
    new_plan = _plan([node("n0", 14)], [_JOB], [*job_pods, *_serving(_JOB, "n0", "")])

    assert new_plan.empty


def test_without_room_a_trainer_of_the_job_gives_way() -> None:
    """The others would stand still without the server; the host of the master stays."""
    job_pods = [
        trainer(_JOB, 0, "n0", Tier.GUARANTEED, master=True),
        trainer(_JOB, 1, "n0", Tier.GUARANTEED),
    ]
    pods = [*job_pods, server(_JOB, 0, "n0"), service("web", 3, "n0")]
    new_plan = _plan([node("n0", 15)], [_JOB], pods)

    assert [(release.pod, release.reason) for release in new_plan.releases] == [
        ("net-trainer-1", Reason.SERVER_MOVES)
    ]
    assert new_plan.releases[0].detail == "parameter server 1 restarts on n0 in its place"
    assert _server_creates(new_plan) == [("ml/net", (1,), ("n0",))]


def test_where_no_trainer_helps_the_server_waits() -> None:
    """Nothing is made that would take guaranteed trainers from other jobs."""
    other = job("other", 2, 2)
    job_pods = [trainer(_JOB, 0, "n0", Tier.GUARANTEED, master=True)]
    pods = [*job_pods, server(_JOB, 0, "n0"), *trainers(other, ["n0", "n0"])]
    new_plan = _plan([node("n0", 18)], [replace(_JOB, min_trainers=1), other], pods)

    assert (new_plan.server_creates, new_plan.releases) == ((), ())


def test_a_server_that_has_ended_makes_way_for_the_next() -> None:
    """Evicted by its kubelet: its pod is deleted, for the next has its name."""
    ended = server(_JOB, 1, "n0", phase=Phase.FAILED)
    pods = [*trainers(_JOB, ["n0", "n0"]), server(_JOB, 0, "n0"), ended]
    new_plan = _plan([node("n0", 14)], [_JOB], pods)
    again = _plan([node("n0", 14)], [_JOB], [*pods[:-1], replace(ended, deleting=True)])

    assert [(r.pod, r.reason, r.node_lost) for r in new_plan.server_releases] == [
        ("net-ps-1", Reason.SERVER_MOVES, False)
    ]
    assert new_plan.server_creates == ()
    assert again.server_releases == ()


def _moved(lost: Node, owner: Job, *, leaving: bool = False) -> list[tuple[str, Reason, bool]]:
    """The servers that a plan releases, one of two being on this node."""
    pods = [
        *trainers(owner, ["n1", "n1"]),
        server(owner, 0, "n1"),
        server(owner, 1, lost.name, deleting=leaving),
    ]
    releases = _plan([lost, node("n1")], [owner], pods).server_releases
    return [(release.pod, release.reason, release.node_lost) for release in releases]


_MOVED = [("net-ps-1", Reason.SERVER_MOVES, True)]
_SAVING = replace(_JOB, servers=replace(servers(2, 2), claim="checkpoints"))


@pytest.mark.parametrize("owner", [_JOB, _SAVING], ids=["no claim", "claim"])
def test_a_server_on_a_lost_node_is_let_go_at_once(owner: Job) -> None:
    """Even a server that is being deleted: no kubelet would confirm it."""
    lost = replace(node("n0"), ready=False, silent=True, unready_s=NOW_S)

    assert _moved(lost, owner) == _moved(lost, owner, leaving=True) == _MOVED


@pytest.mark.parametrize(
    ("owner", "restart_s"), [(_SAVING, 60), (_JOB, 300)], ids=["claim", "no claim"]
)
def test_a_kubelet_that_says_it_is_not_ready_gets_time(owner: Job, restart_s: float) -> None:
    """Its runtime or network restarts; the server continues meanwhile, its parameters in memory."""
    unready = replace(node("n0"), ready=False)

    assert _moved(replace(unready, unready_s=NOW_S - restart_s + 1), owner) == []
    assert _moved(replace(unready, unready_s=NOW_S - restart_s), owner) == _MOVED
    assert _moved(unready, owner) == []


def test_a_server_on_a_deleted_node_is_let_go() -> None:
    """Kubernetes removes its pod within a minute; until then its name is taken."""
    pods = [*trainers(_JOB, ["n1", "n1"]), server(_JOB, 0, "n1"), server(_JOB, 1, "gone")]
    state = cluster_state([node("n1")], [_JOB], pods)
    just_gone = plan(state, Policy(), NOW_S, History(tainted_since={}))

    assert just_gone.server_releases == ()
    releases = plan(state, Policy(), NOW_S).server_releases
    assert [(release.pod, release.reason, release.node_lost) for release in releases] == _MOVED


def test_servers_outlive_the_last_trainer() -> None:
    """Who ends may still fetch the parameters."""
    over = replace(_JOB, status=JobStatus(conditions=(JobCondition("Complete", "True"),)))
    serving = [server(over, 0, "n0"), server(over, 1, "n0", deleting=True)]
    leaving = trainer(over, 0, "n0", Tier.GUARANTEED, deleting=True)
    ended = replace(leaving, phase=Phase.SUCCEEDED, deleting=False)
    before = _plan([node("n0")], [over], [leaving, *serving])
    after = _plan([node("n0")], [over], [ended, *serving])

    assert before.server_releases == ()
    assert [(r.pod, r.reason, r.node_lost) for r in after.server_releases] == [
        ("net-ps-0", Reason.JOB_STOPPED, False)
    ]


def test_a_suspended_job_has_no_servers() -> None:
    """It starts again with new ones, all or nothing."""
    paused = replace(_JOB, suspended=True)
    new_plan = _plan([node("n0")], [paused], _serving(paused, "n0", "n0"))

    assert len(new_plan.server_releases) == 2
    assert new_plan.server_creates == ()


def test_servers_of_a_job_that_is_wrong_stay() -> None:
    """Until somebody has corrected it."""
    wrong = replace(_JOB, error="no")
    new_plan = _plan([node("n0")], [wrong], [server(wrong, 0, "n0", phase=Phase.FAILED)])

    assert new_plan.empty


def test_servers_of_an_earlier_job_of_the_name_are_none_of_it() -> None:
    """They go with their own Job."""
    old = replace(server(_JOB, 0, "n0"), owner_uid="before", uid="old")
    new_plan = _plan([node("n0", 18)], [_JOB], [old])

    assert _server_creates(new_plan) == [("ml/net", (0, 1), ("n0", "n0"))]


def test_jobs_of_the_built_in_controller_get_none() -> None:
    """Their trainers could not get the addresses."""
    plain = replace(_JOB, managed=False)
    new_plan = _plan([node("n0")], [plain], [])

    assert new_plan.server_creates == ()


def test_a_job_whose_trainers_are_gone_keeps_its_servers() -> None:
    """They hold what was trained; its trainers start without new ones."""
    new_plan = _plan([node("n0", 14)], [_JOB], _serving(_JOB, "n0", "n0"))

    assert (new_plan.server_creates, new_plan.server_releases) == ((), ())
    assert _created_trainers(new_plan) == 2


def test_servers_count_in_quotas() -> None:
    """Of a job that starts, and of one that runs while one of them is missing."""
    elastic = replace(_JOB, max_trainers=9)
    start = _plan([node("n0", 40)], [elastic], [], _quota("13"))
    exact = _plan([node("n0", 40)], [elastic], [], _quota("14"))
    job_pods = [*trainers(elastic, ["n0", "n0"]), server(elastic, 0, "n0")]
    running = _plan([node("n0", 40)], [elastic], job_pods, _quota("18"))

    assert start.empty
    assert start.jobs[0].reason is Reason.QUOTA_REACHED
    assert (_server_creates(exact), _created_trainers(exact)) == (
        [("ml/net", (0, 1), ("n0", "n0"))],
        2,
    )
    assert (_server_creates(running), _created_trainers(running)) == (
        [("ml/net", (1,), ("n0",))],
        0,
    )


def test_surplus_in_the_same_quota_goes_for_servers_too() -> None:
    """As much as servers and trainers that start need, and not for less than all of them."""
    rich = job("rich", 1, 4)
    job_pods = trainers(rich, ["n0", "n0", "n0"])
    new_plan = _plan([node("n0", 40)], [rich, _JOB], job_pods, _quota("19"))
    never = _plan([node("n0", 40)], [rich, _JOB], job_pods, _quota("18"))

    assert [release.reason for release in new_plan.releases] == [Reason.QUOTA_REACHED] * 2
    assert len(new_plan.server_creates) == 1
    assert (never.server_creates, never.releases) == ((), ())


def test_memory_of_servers_counts_against_limits() -> None:
    """It is their limit, too."""
    heavy = job("net", 1, 1, servers=servers(2, 1, 8))
    quota = Quota(namespace="ml", limits={"memory": "15Gi"})
    policy = _FREE.model_copy(update={"quotas": (quota,)})

    assert _plan([node("n0")], [heavy], [], policy).empty


def test_servers_count_in_shares() -> None:
    """Of two jobs with as many trainers the one with servers is richer."""
    served = job("served", 1, 9, servers=servers(2, 2))
    plain = job("zplain", 1, 9)
    pods = [
        *trainers(served, ["n0"]),
        *_serving(served, "n0", "n0"),
        *trainers(plain, ["n0"]),
    ]
    new_plan = _plan([node("n0", 19)], [served, plain], pods)

    assert [(create.job, create.count) for create in new_plan.creates] == [("ml/zplain", 1)]
    shares = {job_plan.key: job_plan.share for job_plan in new_plan.jobs}
    assert shares["ml/served"] > 5 / 19


def test_fulfilment_is_about_trainers_alone() -> None:
    """Servers are the same at every size."""
    policy = _FREE.model_copy(update={"fairness": Fairness(by=FairnessBy.FULFILMENT)})
    pods = [*trainers(_JOB, ["n0", "n0"]), *_serving(_JOB, "n0", "n0")]
    new_plan = _plan([node("n0")], [_JOB], pods, policy)

    assert new_plan.jobs[0].share == 0.0


def test_servers_may_leave_the_pools_of_trainers() -> None:
    """Pools apply to trainers only; the template's constraints apply to servers too."""
    policy = _FREE.model_copy(
        update={"node_pools": Policy.model_validate({"nodePools": [_POOL]}).node_pools}
    )
    nodes = [node("gpu", 10, labels={"pool": "gpu"}), node("plain", 4)]
    new_plan = _plan(nodes, [_JOB], [], policy)

    assert _server_creates(new_plan) == [("ml/net", (0, 1), ("plain", "plain"))]


_POOL = {"name": "gpu", "labels": {"pool": "gpu"}}


def test_a_rest_is_a_rest() -> None:
    """A job with everything it asks for is planned without a word."""
    new_plan = _plan(
        [node("n0", 14)], [_JOB], [*trainers(_JOB, ["n0", "n0"]), *_serving(_JOB, "n0", "n0")]
    )

    assert new_plan.empty
    assert new_plan.jobs[0].reason is Reason.AT_MAX


def test_a_start_that_fails_leaves_its_quota_to_others() -> None:
    """What servers would have taken of it is back: 14 CPU, of which another job may use 7."""
    small = job("small", 1, 1, cpu=7, created_s=NOW_S)
    new_plan = _plan([node("n0", 13)], [_JOB, small], [], _quota("14"))

    assert [create.job for create in new_plan.creates] == ["ml/small"]
