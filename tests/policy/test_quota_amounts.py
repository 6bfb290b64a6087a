"""What counts against quotas: pods as they are, and the shape of those to come."""

from dataclasses import replace
from typing import Any

from policy.admission import sidecar
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, Pod, ServerSpec
from policy.document.model import Policy, Reserve
from policy.document.queue_model import Quota
from policy.names import Role, Tier
from policy.planning.plan import Plan
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import NOW_S, cluster_state, job, node, shape, trainer, trainers

_NODES = [node("n0", 200)]


def _policy(**amounts: Any) -> Policy:
    return Policy(reserve=Reserve(max_load={}), quotas=(Quota(namespace="ml", **amounts),))


def _plan(owner: Job, pods: list[Pod], **amounts: Any) -> Plan:
    return plan(cluster_state(_NODES, [owner], pods), _policy(**amounts), NOW_S)


def _created(new_plan: Plan) -> int:
    return sum(create.count for create in new_plan.creates)


def test_trainers_that_were_resized_in_place_count_with_their_size() -> None:
    """A quota of 10 CPU has room for one of 2 beside two that have grown to 4."""
    owner = job("a", 1, 9, cpu=2)
    grown = [replace(pod, requests=shape(4)) for pod in trainers(owner, ["n0", "n0"])]

    assert _created(_plan(owner, grown, requests={"cpu": "10"})) == 1


def test_trainers_smaller_than_their_job_says_leave_room() -> None:
    """The template has grown since they were created."""
    owner = job("a", 1, 9, cpu=4)
    small = [replace(pod, requests=shape(1)) for pod in trainers(owner, ["n0", "n0"])]

    assert _created(_plan(owner, small, requests={"cpu": "10"})) == 2


def test_a_release_gives_back_what_the_trainer_had() -> None:
    """Of 12 CPU in a quota of 8 one trainer of 5 is enough, and one of 1 CPU comes for it."""
    owner = job("a", 1, 9, cpu=1)
    pods = trainers(owner, ["n0"] * 8)
    pods[-1] = replace(pods[-1], requests=shape(5))

    new_plan = _plan(owner, pods, requests={"cpu": "8"})

    assert [release.reason for release in new_plan.releases] == [Reason.QUOTA_REACHED]
    assert _created(new_plan) == 1


def test_limits_of_pods_count_as_they_are() -> None:
    """One without a limit counts with its request."""
    owner = job("a", 1, 9, cpu=2, limits={"cpu": 2000})
    first, second = trainers(owner, ["n0", "n0"])

    new_plan = _plan(
        owner,
        [replace(first, limits={"cpu": 5000}), replace(second, limits={})],
        limits={"cpu": "10"},
    )

    assert _created(new_plan) == 1


def test_parameter_servers_count_as_they_are() -> None:
    """What an injector added to one of them; one that is missing counts with its spec."""
    owner = job("a", 1, 9, cpu=2, master=True, servers=ServerSpec(2, shape(1)))
    host = trainer(owner, 0, "n0", Tier.GUARANTEED, master=True)
    server = replace(
        trainer(owner, -1, "n0", Tier.SUPPORT),
        uid="ps",
        role=Role.PSERVER,
        server=0,
        requests=shape(3),
    )

    new_plan = _plan(owner, [host, server], requests={"cpu": "10"})

    assert _created(new_plan) == 2


def test_the_sidecar_of_a_master_is_not_counted() -> None:
    """Its host changes: a quota that it could exceed would end trainers with each change."""
    owner = job("a", 1, 2, cpu=2, limits={"cpu": 2000}, master=True)
    with_master = {
        name: amount + sidecar.REQUESTS.get(name, 0) for name, amount in shape(2).items()
    }
    host = trainer(owner, 0, "n0", Tier.GUARANTEED, master=True, requests=with_master)
    host = replace(host, limits={"cpu": 3000})

    new_plan = _plan(owner, [host], requests={"cpu": "4"}, limits={"cpu": "4"})

    assert _created(new_plan) == 1


def test_sums_follow_the_trainers_and_end_with_the_job() -> None:
    """They are kept while none of the job's trainers changes."""
    owner = job("a", 1, 9, cpu=2)
    cluster = cluster_state(_NODES, [owner], trainers(owner, ["n0", "n0"]))
    first = cluster.trainer_amounts(owner)
    assert cluster.trainer_amounts(owner) is first
    assert first == {"cpu": 4000, "pods": 2, "limits.cpu": 4000, "limits.pods": 2}

    cluster.put_pod(trainer(owner, 2, "n0"))
    assert cluster.trainer_amounts(owner)["cpu"] == 6000
    cluster.drop_job(owner.key)
    assert ClusterState().trainer_amounts(owner) == {}


def test_surplus_that_makes_way_in_a_quota_counts_with_its_size() -> None:
    """One trainer that has grown to 6 CPU is enough for two of 3."""
    giver, newcomer = job("a", 1, 9, cpu=2), job("b", 2, 2, cpu=3)
    pods = trainers(giver, ["n0"] * 3)
    pods[-1] = replace(pods[-1], requests=shape(6))
    cluster = cluster_state(_NODES, [giver, newcomer], pods)

    new_plan = plan(cluster, _policy(requests={"cpu": "10"}), NOW_S)

    assert [release.uid for release in new_plan.releases] == [pods[-1].uid]
    assert {create.job: create.count for create in new_plan.creates} == {newcomer.key: 2}


def test_surplus_makes_way_by_what_admission_gave_it() -> None:
    """Its job's template requests no memory, its trainers have some: the plan failed with an error."""
    giver, newcomer = job("a", 1, 5, cpu=1), job("b", 2, 2, cpu=2, memory=3)
    pods = [replace(pod, requests=shape(1, 2)) for pod in trainers(giver, ["n0"] * 4)]
    cluster = cluster_state(_NODES, [giver, newcomer], pods)

    new_plan = plan(cluster, _policy(requests={"cpu": "6", "memory": "8Gi"}), NOW_S)

    assert [release.uid for release in new_plan.releases] == [pod.uid for pod in pods[3:0:-1]]
    assert {create.job: create.count for create in new_plan.creates}[newcomer.key] == 2
