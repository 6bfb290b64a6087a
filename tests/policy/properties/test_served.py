"""What holds where some jobs have parameter servers."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Pod, Snapshot
from policy.names import Role, Tier
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import NOW_S, server, servers
from tests.support.simulate import Cluster
from tests.support.strategies import CALM, Case, cases

_ROUNDS = 150


@st.composite
def _served(draw: st.DrawFn) -> Case:
    """Clusters in the middle of things, in which jobs asked for parameter servers.

    Some of those are there, some leave, some were never made.
    """
    case = draw(cases())
    room = {node.name: dict(node.allocatable) for node in case.snapshot.nodes}
    for pod in case.snapshot.pods:
        if pod.node:
            amounts.subtract(room[pod.node], pod.requests)
    jobs, pods = [], list(case.snapshot.pods)
    for owner in case.snapshot.jobs:
        server_spec = servers(draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 4])))
        job = replace(owner, servers=server_spec) if draw(st.booleans()) else owner
        jobs.append(job)
        for number in range(server_spec.count if job.servers else 0):
            fitting = sorted(
                n for n, free in room.items() if amounts.within(server_spec.requests, free)
            )
            where = draw(st.sampled_from(["", *fitting]))
            if where:
                amounts.subtract(room[where], server_spec.requests)
                pods.append(server(job, number, where, deleting=draw(st.integers(0, 4)) == 0))
    nodes = tuple(replace(node, ready=True) for node in case.snapshot.nodes)
    return Case(Snapshot(nodes, tuple(pods), tuple(jobs)), case.policy)


def _standing(state: ClusterState, key: str) -> list[Pod]:
    return [pod for pod in state.servers_of(state.jobs[key]) if not pod.deleting]


@CALM
@given(_served())
def test_no_trainer_starts_without_servers(case: Case) -> None:
    """The first trainers of a job come with every server, and no server comes alone."""
    state = ClusterState.of(case.snapshot)
    new_plan = plan(state, case.policy, NOW_S)
    begun = {create.job for create in new_plan.creates if create.tier is Tier.GUARANTEED}

    for owner in state.jobs.values():
        new = [
            number
            for serve in new_plan.server_creates
            if serve.job == owner.key
            for number in serve.numbers
        ]
        assert not set(new) & {pod.server for pod in state.servers_of(owner)}
        if owner.servers is None or state.trainers(owner) or state.servers_of(owner):
            continue
        assert len(new) == (owner.servers.count if owner.key in begun else 0)


@CALM
@given(_served())
def test_plans_come_to_rest_with_all_servers(case: Case) -> None:
    """At rest a job that runs has each of its servers once, placed; a stopped one has none.

    Unless nothing helps: no node has room, even if trainers of the job itself go.
    """
    cluster = Cluster(case.snapshot.nodes, case.snapshot.jobs, case.snapshot.pods)
    cluster.settle(case.policy, _ROUNDS)
    state = cluster.state()
    new_plan = cluster.plan(case.policy)

    assert new_plan.empty
    for owner in state.jobs.values():
        numbers = sorted(pod.server for pod in _standing(state, owner.key))
        assert len(numbers) == len(set(numbers))
        if owner.stopped:
            assert numbers == []
        elif owner.servers is not None and len(numbers) < state.server_count(owner):
            assert not any(
                amounts.within(owner.servers.requests, state.free(name))
                for name in state.open_nodes(owner.constraints)
            )


@CALM
@given(_served())
def test_what_is_placed_fits(case: Case) -> None:
    """In every cycle what runs on a node fits it, servers included; no server goes for a trainer."""
    cluster = Cluster(case.snapshot.nodes, case.snapshot.jobs, case.snapshot.pods)
    for _ in range(12):
        new_plan = cluster.round(case.policy)
        state = cluster.state()
        assert all(amount >= 0 for n in state.nodes for amount in state.free(n).values())
        for retire in new_plan.server_releases:
            assert state.jobs[retire.job].stopped or retire.reason is Reason.SERVER_MOVES
        for release in new_plan.releases:
            pod = state.pods.get(release.uid)
            assert pod is None or pod.role is Role.TRAINER
