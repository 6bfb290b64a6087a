from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.cluster.cluster_state import ClusterState, job_key
from policy.cluster.live_trainers import is_surplus
from policy.cluster.snapshot import Job, JobStatus, Node, Phase, Pod, Taint, TrainerAccounting
from policy.names import Tier
from tests.support.builders import (
    NOW_S,
    cluster_state,
    job,
    node,
    server,
    servers,
    service,
    shape,
    support,
    trainer,
    trainers,
)
from tests.support.strategies import CALM

_NAMES = ("n0", "n1", "n2")
_JOB = job("a", 1, 4)
_PLAIN = job("plain", 1, 4, managed=False)
_SERVED = job("served", 1, 4, servers=servers(2, 5))

_nodes = st.builds(
    node,
    st.sampled_from(_NAMES),
    st.integers(1, 20),
    gpus=st.sampled_from([0, 8]),
    ready=st.booleans(),
    unschedulable=st.booleans(),
    taints=st.sampled_from([(), (Taint("maintenance", "", "NoSchedule"),)]),
)
_jobs = st.builds(
    replace,
    st.sampled_from([_JOB, _PLAIN, replace(_JOB, uid="uid-later")]),
    min_trainers=st.integers(0, 2),
    managed=st.booleans(),
    master=st.booleans(),
    accounting=st.sampled_from([TrainerAccounting(), TrainerAccounting(succeeded=1)]),
    status=st.sampled_from([JobStatus(), JobStatus(active=1)]),
)


@st.composite
def _pods(draw: st.DrawFn) -> Pod:
    number = draw(st.integers(0, 3))
    pod = draw(
        st.sampled_from(
            [
                trainer(_JOB, number),
                service(f"p{number}", owner_uid=_PLAIN.uid),
                service(f"s{number}"),
                support(_JOB, f"m{number}"),
                server(_SERVED, number),
            ]
        )
    )
    return replace(
        pod,
        node=draw(st.sampled_from(["", *_NAMES])),
        phase=draw(st.sampled_from(Phase)),
        deleting=draw(st.booleans()),
        master=draw(st.booleans()),
        requests=shape(draw(st.integers(1, 9)), gpus=draw(st.sampled_from([0, 1]))),
    )


def test_promised_amounts_are_left_alone() -> None:
    """A pod fits beside them where their sum does, and none of it is taken for good."""
    cluster = cluster_state(nodes=[node("n0", 10)], pods=[service("web", 3, where="n0")])

    assert cluster.fits_beside(shape(3), "n0", shape(4))
    assert not cluster.fits_beside(shape(4), "n0", shape(4))
    assert cluster.free("n0")["cpu"] == 7000


_Change = Node | Pod | Job | str
_changes = st.lists(
    st.one_of(
        *(_nodes, _pods(), _jobs, st.sampled_from(_NAMES), st.just("ml/a")),
        _pods().map(lambda p: p.uid),
    ),
    max_size=40,
)


def _apply(cluster: ClusterState, change: _Change) -> None:
    match change:
        case Node():
            cluster.put_node(change)
        case Pod():
            cluster.put_pod(change)
        case Job():
            cluster.put_job(change)
        case str():
            cluster.drop_node(change)
            cluster.drop_pod(change)
            cluster.drop_job(change)


def _sums(cluster: ClusterState) -> dict[str, object]:
    """All that decisions read of the state; amounts of 0 do not count."""

    def trim(amounts: dict[str, int]) -> dict[str, int]:
        return {name: amount for name, amount in amounts.items() if amount}

    return {
        "nodes": cluster.nodes,
        "restricted": cluster.restricted,
        "live trainers": {job.key: cluster.live_trainers(job) for job in cluster.jobs.values()},
        "pods": cluster.pods,
        "jobs": cluster.jobs,
        "used": {name: trim(used) for name, used in cluster.used.items()},
        "bound": cluster.bound,
        "waiting": cluster.waiting,
        "members": cluster.members,
        "master_hosts": cluster.master_hosts,
        "servers": cluster.servers,
        "owned": cluster.owned,
        "allocatable": trim(cluster.allocatable),
        "usable": trim(cluster.usable().allocatable),
        "in use": trim(cluster.usable().in_use),
    }


@CALM
@given(_changes)
def test_changes_one_by_one_are_the_same_as_a_recount(changes: list[_Change]) -> None:
    """After any sequence of changes the sums are those of a new state."""
    cluster = ClusterState()
    cluster.put_job(_JOB)
    for change in changes:
        _apply(cluster, change)
        _sums(cluster)

    fresh = cluster_state(
        list(cluster.nodes.values()), list(cluster.jobs.values()), list(cluster.pods.values())
    )
    assert _sums(cluster) == _sums(fresh)


def test_a_write_to_a_job_costs_no_recount_of_its_trainers() -> None:
    """Its status and accounting change with each trainer that starts, and say nothing about the others."""
    cluster = cluster_state([node("n0")], [_JOB], [trainer(_JOB, 1, "n0")])
    before = cluster.live_trainers(_JOB)
    written = replace(_JOB, status=JobStatus(active=1), accounting=TrainerAccounting(next_id=2))
    cluster.put_job(written)

    assert cluster.live_trainers(written) is before


@pytest.mark.parametrize(
    "fields",
    [
        {"uid": "uid-later"},
        {"managed": False},
        {"managed": False, "min_trainers": 2},
        {"accounting": TrainerAccounting(succeeded=1)},
    ],
)
def test_another_job_of_the_name_has_its_trainers_counted_again(fields: dict[str, Any]) -> None:
    """And so has one that is no longer EDL's, or of which a trainer has succeeded."""
    cluster = cluster_state([node("n0")], [_JOB], [trainer(_JOB, 1, "n0")])
    before = cluster.live_trainers(_JOB)
    written = replace(_JOB, **fields)
    cluster.put_job(written)

    assert cluster.live_trainers(written) is not before


def test_leaving_pods_hold_their_room() -> None:
    """A terminating pod counts until it is gone; one that has ended does not count at all."""
    pods = [
        service("going", 3, "n0", deleting=True),
        service("done", 4, "n0", phase=Phase.SUCCEEDED),
        service("failed", 4, "n0", phase=Phase.FAILED),
    ]
    cluster = cluster_state([node("n0", 10)], pods=pods)

    assert cluster.free("n0")["cpu"] == 7_000
    assert cluster.usable().in_use["cpu"] == 3_000


def test_pods_on_unknown_nodes_use_nothing() -> None:
    """A pod may name a node that is gone, or not seen yet: no sum of the cluster counts it."""
    cluster = cluster_state([node("n0")], pods=[service("lost", 3, "gone")])

    assert cluster.usable().in_use == {}
    cluster.put_node(node("gone", 10))
    assert cluster.free("gone")["cpu"] == 7_000


def test_only_pods_that_want_a_node_wait() -> None:
    """Deleted ones do not."""
    cluster = cluster_state(
        pods=[service("a"), service("b", deleting=True), service("c", where="n0")]
    )

    assert set(cluster.waiting) == {"uid-a"}


def test_trainers_belong_to_this_very_job() -> None:
    """Those of an earlier Job of the same name, ended ones and leaving ones are not counted."""
    live = trainer(_JOB, 1, "n0")
    others = [
        trainer(_JOB, 2, "n0", owner_uid="uid-before"),
        trainer(_JOB, 3, "n0", phase=Phase.FAILED),
        trainer(_JOB, 4, "n0", deleting=True),
    ]

    assert cluster_state([node("n0")], [_JOB], [live, *others]).trainers(_JOB) == (live,)


def test_pods_of_the_builtin_controller_get_tiers_by_age() -> None:
    """They carry no labels of ours: the oldest that run count as guaranteed."""
    pods = [
        service("new", where="n0", owner_uid=_PLAIN.uid, namespace="ml", created_s=NOW_S),
        service("waits", owner_uid=_PLAIN.uid, namespace="ml", created_s=1.0),
        service("old", where="n0", owner_uid=_PLAIN.uid, namespace="ml", created_s=2.0),
        service("gone", where="n0", owner_uid=_PLAIN.uid, namespace="ml", deleting=True),
    ]

    live = cluster_state([node("n0")], [_PLAIN], pods).trainers(_PLAIN)

    assert [(pod.name, pod.tier) for pod in live] == [
        ("waits", Tier.SURPLUS),
        ("new", Tier.SURPLUS),
        ("old", Tier.GUARANTEED),
    ]


def test_pods_of_another_namespace_belong_to_no_job() -> None:
    """Whoever creates pods there may name any uid as their controller's."""
    pods = [
        service("own", where="n0", owner_uid=_PLAIN.uid, namespace="ml"),
        service("foreign", where="n0", owner_uid=_PLAIN.uid, namespace="evil"),
    ]

    live = cluster_state([node("n0")], [_PLAIN], pods).trainers(_PLAIN)

    assert [pod.name for pod in live] == ["own"]


def test_a_share_is_weighed_by_job_and_queue() -> None:
    """Twice the weight makes half the share."""
    cluster = cluster_state([node("n0", 50)])
    heavy = job("a", weight=2, queue="night")

    assert cluster.share(_JOB, 5, {}) == 0.5
    assert cluster.share(heavy, 5, {"night": 5}) == 0.05


def test_servers_count_from_a_jobs_first_pod_on() -> None:
    """All or none of them: of one that waits, none; of one that runs, those that are missing too."""
    first = trainer(_SERVED, 0, "n0")
    other = server(_SERVED, 0, "n0", owner_uid="uid-before")
    nodes = [node("n0", 50)]

    assert cluster_state(nodes, [_SERVED], [other]).server_count(_SERVED) == 0
    assert cluster_state(nodes, [_SERVED], [first]).server_count(_SERVED) == 2
    assert cluster_state(nodes, [_SERVED], [server(_SERVED, 1, "n0")]).server_count(_SERVED) == 2
    assert cluster_state(nodes, [_JOB], [trainer(_JOB, 0, "n0")]).server_count(_JOB) == 0
    for stopped in (replace(_SERVED, suspended=True), replace(_SERVED, managed=False)):
        assert cluster_state(nodes, [stopped], [first]).server_count(stopped) == 0


def test_servers_are_part_of_a_share() -> None:
    """Weighed as trainers are."""
    cluster = cluster_state([node("n0", 50)])

    assert cluster.servers_share(_SERVED, {}) == 0.2
    assert cluster.servers_share(replace(_SERVED, weight=2), {}) == 0.1
    assert cluster.servers_share(_JOB, {}) == 0.0


def test_surplus_is_a_tier_of_trainers() -> None:
    """Other roles never are, whatever tier they claim."""
    first, second = trainers(_JOB, ["n0", "n0"])

    assert not is_surplus(first)
    assert is_surplus(second)
    assert not is_surplus(replace(support(_JOB, "m"), tier=Tier.SURPLUS))
    assert job_key(first) == _JOB.key


def test_the_host_of_a_master_counts_until_it_is_deleted() -> None:
    """Told to stop, ended, of an earlier Job or of another job: none of these carries it."""
    owner = job("net", 2, 2, master=True)
    pod = trainer(owner, 0, "n0", Tier.GUARANTEED, master=True)
    others = (
        replace(pod, deleting=True),
        replace(pod, phase=Phase.FAILED),
        replace(pod, owner_uid="an earlier one"),
        replace(pod, job="other"),
        replace(pod, job=""),
        replace(pod, master=False),
    )
    cluster = cluster_state(jobs=[owner], pods=[pod])

    assert cluster.master_host(owner) == pod
    assert [cluster_state(jobs=[owner], pods=[other]).master_host(owner) for other in others] == [
        None
    ] * 6
    cluster.drop_pod(pod.uid)
    assert cluster.master_host(owner) is None
    assert cluster.master_hosts == {}


def test_of_several_hosts_one_counts() -> None:
    """A pod of role master, created by EDL or not; otherwise the youngest trainer."""
    owner = job("net", 2, 2, master=True)
    first, second = (trainer(owner, i, "n0", Tier.GUARANTEED, master=True) for i in range(2))
    master = replace(support(owner, "net-master", "n0"), master=True)

    assert cluster_state(jobs=[owner], pods=[first, second]).master_host(owner) == second
    assert cluster_state(jobs=[owner], pods=[first, second, master]).master_host(owner) == master


def test_placed_pods_are_counted_among_those_that_waited() -> None:
    """One that waits still, and one that is gone, are not."""
    placed, waiting = trainer(job("net"), 0, "n0"), trainer(job("net"), 1)
    cluster = cluster_state([node("n0")], pods=[placed, waiting])

    assert cluster.count_placed([placed.uid, waiting.uid, "gone"]) == 1


def test_jobs_that_are_put_follow_the_overcommit_of_the_policy() -> None:
    """Whoever puts them: the watch, or a writer with what the API server answered."""
    cluster = cluster_state()
    cluster.overcommit = lambda owner: replace(owner, requests=shape(2))

    cluster.put_job(job("a", cpu=3))

    assert cluster.jobs["ml/a"].requests == shape(2)


def test_jobs_that_are_put_request_nothing_that_the_policy_ignores() -> None:
    """No node has to have it for a trainer, as kube-scheduler ignores it too."""
    cluster = cluster_state()
    cluster.ignored = frozenset({"example.com/device"})

    cluster.put_job(job("a", requests={**shape(3), "example.com/device": 1000}))

    assert cluster.jobs["ml/a"].requests == shape(3)
