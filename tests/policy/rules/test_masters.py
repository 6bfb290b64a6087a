from dataclasses import replace

from policy.cluster.snapshot import Job, Node, Phase, Pod, TrainerAccounting
from policy.document.model import Policy, Reserve
from policy.document.queue_model import Quota
from policy.names import Role, Tier
from policy.planning.plan import Plan
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import NOW_S, cluster_state, job, node, service, shape, support, trainer

_FREE = Policy(reserve=Reserve(max_load={}))
_JOB = job("net", 2, 2, master=True)
"""Trainers of 5 CPU; the one that carries the master asks for 100m more."""


def _plan(nodes: list[Node], jobs: list[Job], pods: list[Pod], policy: Policy = _FREE) -> Plan:
    return plan(cluster_state(nodes, jobs, pods), policy, NOW_S)


def _job_pods(owner: Job, *places: str, host: int = -1) -> list[Pod]:
    """Guaranteed trainers, one of which may carry the master."""
    return [
        trainer(owner, number, where, Tier.GUARANTEED, master=number == host)
        for number, where in enumerate(places)
    ]


def _quota(cpu: str) -> Policy:
    """A policy that allows namespace ml so much CPU."""
    quota = Quota(namespace="ml", requests={"cpu": cpu})
    return _FREE.model_copy(update={"quotas": (quota,)})


def _master_creates(new_plan: Plan) -> list[tuple[Tier, int]]:
    return [(create.tier, create.count) for create in new_plan.creates if create.master]


def test_the_first_trainers_bring_the_master() -> None:
    """One creation is marked, and only where a job asked."""
    plain = job("plain", 1, 1)
    new_plan = _plan([node("n0", 18)], [_JOB, plain], [])

    assert _master_creates(new_plan) == [(Tier.GUARANTEED, 2)]
    assert [create.job for create in new_plan.creates if create.master] == ["ml/net"]


def test_the_master_needs_room_too() -> None:
    """Two trainers fill a node of 10 CPU to the brim: with a master they do not start there."""
    tight = _plan([node("n0", 10)], [_JOB], [])
    wide = _plan([node("n0", 10.1, memory=64)], [_JOB], [])

    assert tight.creates == ()
    assert tight.jobs[0].reason is Reason.WAITING_FOR_ROOM
    assert _master_creates(wide) == [(Tier.GUARANTEED, 2)]


def test_a_node_for_a_trainer_alone_is_too_small() -> None:
    """The reason shows the requests, including the master's."""
    single = job("net", 1, 1, master=True)
    new_plan = _plan([node("n0", 5)], [single], [])

    assert new_plan.jobs[0].reason is Reason.FITS_NO_NODE
    assert "5100m cpu" in new_plan.jobs[0].detail


def test_while_a_pod_carries_it_no_other_does() -> None:
    """Other trainers come and go without a mark."""
    new_plan = _plan([node("n0", 18)], [_JOB], _job_pods(_JOB, "n0", host=0))

    assert [(create.tier, create.master) for create in new_plan.creates] == [
        (Tier.GUARANTEED, False)
    ]


def test_the_replacement_of_the_host_hosts_the_master() -> None:
    """As soon as its deletion starts."""
    first, second = _job_pods(_JOB, "n0", "n1", host=0)
    leaving = replace(first, deleting=True)
    new_plan = _plan([node("n0"), node("n1")], [_JOB], [leaving, second])

    assert _master_creates(new_plan) == [(Tier.GUARANTEED, 1)]
    assert new_plan.releases == ()


def test_surplus_gives_way_to_the_master() -> None:
    """Its own, too: kube-scheduler preempts it for the guaranteed trainer."""
    elastic = job("net", 1, 3, master=True)
    surplus = [trainer(elastic, 1, "n0"), trainer(elastic, 2, "n0")]
    new_plan = _plan([node("n0", 10)], [elastic], surplus)

    assert _master_creates(new_plan) == [(Tier.GUARANTEED, 1)]


def test_without_room_a_living_trainer_gives_way() -> None:
    """All others are services; one guaranteed trainer less is better than no master."""
    job_pods = _job_pods(_JOB, "n0")
    new_plan = _plan([node("n0", 18)], [_JOB], [*job_pods, service("web", 12.5, "n0")])

    assert [release.pod for release in new_plan.releases] == ["net-trainer-0"]
    assert new_plan.releases[0].reason is Reason.MASTER_MOVES
    assert "a new trainer on n0" in new_plan.releases[0].detail
    assert _master_creates(new_plan) == [(Tier.GUARANTEED, 1)]


def test_as_few_as_possible_give_way() -> None:
    """On the node where one is enough, not where two would have to."""
    three = job("net", 4, 4, master=True)
    job_pods = _job_pods(three, "n0", "n0", "n1")
    fill = [service("a", 8, "n0"), service("b", 12.5, "n1")]
    new_plan = _plan([node("n0", 18), node("n1", 18)], [three], [*job_pods, *fill])

    assert [release.node for release in new_plan.releases] == ["n1"]
    assert new_plan.creates[0].nodes == ("n1",)


def test_two_give_way_where_one_is_not_enough() -> None:
    """The trainer that brings the master asks for a little more than one that leaves."""
    three = job("net", 3, 3, master=True)
    job_pods = _job_pods(three, "n0", "n0")
    new_plan = _plan([node("n0", 18)], [three], [*job_pods, service("web", 8, "n0")])

    assert len(new_plan.releases) == 2
    assert _master_creates(new_plan) == [(Tier.GUARANTEED, 1)]


def test_where_even_that_helps_nothing_all_stay() -> None:
    """Trainers that live are worth more than nothing."""
    new_plan = _plan([node("n0", 5)], [_JOB], _job_pods(_JOB, "n0"))

    assert (new_plan.releases, new_plan.creates) == ((), ())


def test_a_full_crew_without_master_changes_one() -> None:
    """A pod of role master carried it and is gone: nobody is missing, and yet one must be made."""
    job_pods = _job_pods(_JOB, "n0", "n0")
    new_plan = _plan([node("n0"), node("n1")], [_JOB], job_pods)

    assert len(new_plan.releases) == 1
    assert _master_creates(new_plan) == [(Tier.GUARANTEED, 1)]


def test_a_pod_of_role_master_carries_it_for_all() -> None:
    """Trainers stay what they are where one lives."""
    pod = replace(support(_JOB, "net-master", "n0"), role=Role.MASTER, master=True)
    new_plan = _plan([node("n0")], [_JOB], [pod, *_job_pods(_JOB, "n0", "n0")])

    assert (new_plan.releases, new_plan.creates) == ((), ())


def test_after_failures_the_master_waits_too() -> None:
    """A trainer that fails at once would take its master along again and again."""
    failing = replace(
        _JOB, accounting=TrainerAccounting(failures_in_row=3, last_failure_s=NOW_S - 1)
    )
    new_plan = _plan([node("n0")], [failing], _job_pods(failing, "n0", "n0"))

    assert (new_plan.releases, new_plan.creates) == ((), ())
    assert new_plan.jobs[0].reason is Reason.BACKING_OFF


def test_the_host_of_the_master_is_released_last_in_its_tier() -> None:
    """Where a maximum is lowered, the other guaranteed trainer goes."""
    smaller = replace(_JOB, min_trainers=1, max_trainers=1)
    new_plan = _plan([node("n0")], [smaller], _job_pods(smaller, "n0", "n0", host=1))

    assert [release.pod for release in new_plan.releases] == ["net-trainer-0"]


def test_a_trainer_that_succeeds_does_not_end_such_a_job() -> None:
    """The end is the master's word; without one, success is the end."""
    done = trainer(_JOB, 1, "n0", Tier.GUARANTEED, phase=Phase.SUCCEEDED)
    new_plan = _plan([node("n0")], [_JOB], [*_job_pods(_JOB, "n0", host=0), done])
    plain = replace(_JOB, master=False)
    ended = _plan([node("n0")], [plain], [*_job_pods(plain, "n0"), done])

    assert [create.count for create in new_plan.creates] == [1]
    assert ended.creates == ()


def test_jobs_without_a_master_are_planned_as_before() -> None:
    """No mark, no sidecar's requests."""
    plain = job("net", 2, 2)
    new_plan = _plan([node("n0", 10)], [plain], [])

    assert new_plan.creates[0].count == 2
    assert _master_creates(new_plan) == []


def test_a_quota_does_not_keep_a_job_without_its_master() -> None:
    """One trainer goes for one that comes."""
    policy = _quota("5")
    new_plan = _plan([node("n0"), node("n1")], [_JOB], _job_pods(_JOB, "n0"), policy)

    assert len(new_plan.releases) == 1
    assert _master_creates(new_plan) == [(Tier.GUARANTEED, 1)]


def test_trainers_made_at_once_count_the_master_once() -> None:
    """The room of the first is larger than that of the others."""
    many = job("net", 3, 3, master=True)
    new_plan = _plan([node("n0", 15.1)], [many], [])

    assert new_plan.creates[0].nodes == ("n0",) * 3


def _stolen(*waiting: Pod) -> tuple[list[Node], list[Pod]]:
    """A new host whose capacity another pod took, on one full node with one more trainer."""
    host = trainer(_JOB, 2, "", Tier.GUARANTEED, master=True, requests=shape(5.1))
    return [node("n0", 10)], [*_job_pods(_JOB, "n0"), host, service("web", 4, "n0"), *waiting]


def test_a_host_that_fits_nowhere_replaces_a_trainer() -> None:
    """Nothing new is made: the room is for the pod that waits."""
    nodes, pods = _stolen()
    new_plan = _plan(nodes, [_JOB], pods)

    assert [release.pod for release in new_plan.releases] == ["net-trainer-0"]
    assert "a new trainer on n0" in new_plan.releases[0].detail
    assert new_plan.creates == ()


def test_room_that_a_service_would_take_is_none() -> None:
    """It outranks the master; one trainer after the other would go for it."""
    nodes, pods = _stolen(service("more", 3))
    new_plan = _plan(nodes, [_JOB], pods)

    assert new_plan.releases == ()


def test_a_host_that_fits_costs_nothing() -> None:
    """It only waits for kube-scheduler."""
    nodes, pods = _stolen()
    new_plan = _plan([*nodes, node("n1")], [_JOB], pods)

    assert (new_plan.releases, new_plan.creates) == ((), ())


def test_a_host_that_no_trainer_can_make_room_for_waits() -> None:
    """Were all to leave, it would not fit."""
    nodes, pods = _stolen(service("big", 1.5, "n0"))
    new_plan = _plan(nodes, [_JOB], pods)

    assert new_plan.releases == ()


def test_a_host_on_a_lost_node_is_released() -> None:
    """Kubernetes would wait five minutes, and the job without its master as long."""
    lost = replace(node("n0"), ready=False, silent=True)
    new_plan = _plan([lost, node("n1")], [_JOB], _job_pods(_JOB, "n0", "n1", host=0))
    other = _plan([lost, node("n1")], [_JOB], _job_pods(_JOB, "n0", "n1", host=1))

    assert [release.pod for release in new_plan.releases] == ["net-trainer-0"]
    assert "its node n0 is not ready" in new_plan.releases[0].detail
    assert other.releases == ()


def test_a_host_on_a_deleted_node_is_released() -> None:
    """Kubernetes removes its pod within a minute; the job has no master until then."""
    (release,) = _plan([node("n1")], [_JOB], _job_pods(_JOB, "gone", "n1", host=0)).releases

    assert (release.reason, release.figures) == (Reason.MASTER_MOVES, {"lost_node": "gone"})


def test_a_host_stays_while_its_kubelet_restarts() -> None:
    """For a minute it says itself that it is not ready."""
    unready = replace(node("n0"), ready=False, unready_s=NOW_S - 59)
    pods = _job_pods(_JOB, "n0", "n1", host=0)

    assert _plan([unready, node("n1")], [_JOB], pods).releases == ()
    unready = replace(unready, unready_s=NOW_S - 60)
    assert len(_plan([unready, node("n1")], [_JOB], pods).releases) == 1


def test_a_pod_of_role_master_on_a_lost_node_is_not_ours_to_delete() -> None:
    """Who made it replaces it."""
    pod = replace(support(_JOB, "net-master", "n0"), role=Role.MASTER, master=True)
    new_plan = _plan(
        [replace(node("n0"), ready=False, silent=True), node("n1")],
        [_JOB],
        [pod, *_job_pods(_JOB, "n1", "n1")],
    )

    assert new_plan.releases == ()
