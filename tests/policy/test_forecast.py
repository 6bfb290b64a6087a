"""What comes of a policy, if services and jobs stay as they are."""

from dataclasses import replace

import pytest

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Constraints, Job, Node, Pod, Requirement, ServerSpec, Snapshot
from policy.document.model import Policy, Reserve, Stability
from policy.document.queue_model import Quota
from policy.names import Role, Tier
from policy.planning.creation_backoff import CreationBackoff
from policy.planning.forecast import Forecast
from policy.planning.plan import History
from policy.planning.plan_input import PlanInput
from policy.planning.planner import plan
from policy.reasons import Reason
from policy.scheduling import Scheduling
from tests.support.builders import NOW_S, job, node, service, trainers

_FULL = Policy(reserve=Reserve(max_load={"cpu": 1.0}))


def _forecast(
    nodes: list[Node],
    jobs: list[Job],
    pods: list[Pod] | None = None,
    history: History | None = None,
) -> Forecast:
    cluster = ClusterState.of(Snapshot(tuple(nodes), tuple(pods or ()), tuple(jobs)))
    return Forecast(PlanInput.of(cluster, _FULL, NOW_S, history))


def _count(forecast: Forecast, owner: Job) -> int:
    return len(forecast.cluster.trainers(forecast.cluster.jobs[owner.key]))


def test_a_job_grows_to_what_there_is_room_for() -> None:
    """A plan lets few trainers wait for the scheduler; a forecast goes on until all are placed."""
    big = job("big", 2, 60)
    forecast = _forecast([node(f"n{i:02}", 20) for i in range(12)], [big])

    last = forecast.settle()

    assert last.empty
    assert _count(forecast, big) == 48
    assert all(pod.node for pod in forecast.cluster.trainers(big))


def test_new_trainers_ask_for_their_nodes_and_their_scheduler() -> None:
    """As the pods of the reconciler: with the constraints of their job, and the marker."""
    wanted = Constraints(((Requirement("pool", "In", ("a",)),),))
    owner = job("net", 2, 60, constraints=wanted)
    nodes = [node("n0", 20, labels={"pool": "a"}), node("n1", 20)]
    scheduling = Scheduling(marked=True)
    forecast = _forecast(nodes, [owner], history=History(scheduling=scheduling))
    forecast.settle()

    created = forecast.cluster.trainers(owner)
    assert {(pod.constraints, pod.marked) for pod in created} == {(wanted, True)}
    assert [pod.node for pod in created] == ["n0"] * 4


def test_another_policy_moves_trainers_and_says_who_lost_them() -> None:
    """The trainers of a job that a new quota shrinks go to the other one."""
    first, second = job("a", 1, 10, queue="a"), job("b", 1, 10)
    pods = [*trainers(first, ["n0"] * 4), *trainers(second, ["n1"] * 1)]
    cluster = ClusterState.of(
        Snapshot((node("n0", 20), node("n1", 20)), tuple(pods), (first, second))
    )
    quota = Quota(queue="a", requests={"cpu": "10"})

    forecast = Forecast(
        PlanInput.of(cluster, _FULL, NOW_S), _FULL.model_copy(update={"quotas": (quota,)})
    )
    forecast.settle()

    assert (_count(forecast, first), _count(forecast, second)) == (2, 6)
    assert forecast.stopped == {"ml/a": 2}
    assert len(cluster.trainers(first)) == 4  # the cluster itself is as before


_NAMES = ("web", "calm", "gated", "huge", "calm-huge")


@pytest.mark.parametrize("age_s", [-0.5, 0.0, 14.0])
@pytest.mark.parametrize("min_run_s", [0.0, 15.0, 600.0])
def test_trainers_that_are_too_young_to_move_now_are_moved_later(
    age_s: float, min_run_s: float
) -> None:
    """Also where the API server's clock, in whole seconds, is behind their start."""
    rich, poor = job("rich", 1, 10), job("poor", 1, 10)
    pods = [
        replace(pod, created_s=NOW_S - age_s, started_s=NOW_S - age_s)
        for pod in (*trainers(rich, ["n0"] * 4), *trainers(poor, ["n1"]))
    ]
    cluster = ClusterState.of(Snapshot((node("n0", 20), node("n1", 5)), tuple(pods), (rich, poor)))
    stability = Stability(min_run_seconds=min_run_s)
    paced = _FULL.model_copy(update={"stability": stability})
    forecast = Forecast(PlanInput.of(cluster, paced, NOW_S))
    forecast.settle()

    assert (_count(forecast, rich), _count(forecast, poor)) == (3, 2)


def test_services_that_wait_take_the_room_of_trainers() -> None:
    """By preemption; a pod that may not preempt, or is gated, waits."""
    owner = job("net", 1, 4)
    pods = [*trainers(owner, ["n0"] * 4), service("web", 5, priority=100)]
    pods += [
        service("calm", 5, priority=100, preempts=False),
        service("gated", 1, priority=100, gated=True),
        service("huge", 50, priority=100),
        service("calm-huge", 50, priority=100, preempts=False),
    ]
    forecast = _forecast([node("n0", 20)], [owner], pods)
    forecast.settle()

    state = forecast.cluster
    assert {name: state.pods[f"uid-{name}"].node for name in _NAMES} == {
        "web": "n0",
        "calm": "n0",
        "gated": "",
        "huge": "",
        "calm-huge": "",
    }
    assert _count(forecast, owner) == 2


def test_a_new_minimum_preempts_surplus() -> None:
    """Its guaranteed trainers are created where surplus is in the way, which kube-scheduler ends."""
    grown, new = job("grown", 1, 4), job("new", 2, 2, created_s=NOW_S)
    forecast = _forecast([node("n0", 20)], [grown, new], trainers(grown, ["n0"] * 4))
    forecast.settle()
    assert (_count(forecast, grown), _count(forecast, new)) == (2, 2)
    assert forecast.stopped == {"ml/grown": 2}


def test_what_leaves_is_gone_after_a_step() -> None:
    """Its room is free then."""
    owner = job("net", 1, 4)
    leaving = service("old", 10, "n0", deleting=True)
    forecast = _forecast([node("n0", 20)], [owner], [*trainers(owner, ["n0"] * 2), leaving])
    forecast.settle()
    assert _count(forecast, owner) == 4


def test_a_job_with_servers_starts_whole() -> None:
    """Its servers and its master's host are created with its trainers, and end with it."""
    owner = job("net", 2, 2, master=True, servers=ServerSpec(2, {"cpu": 1000, "pods": 1}))
    forecast = _forecast([node("n0", 40)], [owner])
    forecast.settle()

    assert _count(forecast, owner) == 2
    assert sum(pod.master for pod in forecast.cluster.trainers(owner)) == 1
    assert len(forecast.cluster.counted_servers(owner)) == 2
    forecast.end(owner.key)
    assert not forecast.cluster.pods


def test_a_server_whose_node_is_lost_moves() -> None:
    """It is created again where there is room; a server is no trainer that was stopped."""
    owner = job("net", 1, 1, servers=ServerSpec(1, {"cpu": 1000, "pods": 1}))
    started = _forecast([node("n0", 40)], [owner])
    started.settle()
    lost = [
        replace(pod, node="gone") if pod.role is Role.PSERVER else pod
        for pod in started.cluster.pods.values()
    ]
    gone = node("gone", 40, ready=False, silent=True)
    forecast = _forecast([node("n0", 40), gone], [owner], lost)
    forecast.settle()
    assert [pod.node for pod in forecast.cluster.servers_of(owner)] == ["n0"]
    assert not forecast.stopped


def test_a_job_of_the_builtin_controller_grows_too() -> None:
    """Its trainers have no ids of EDL's."""
    owner = job("plain", 1, 3, managed=False, parallelism=1)
    forecast = _forecast([node("n0", 40)], [owner])
    forecast.step()
    assert all(pod.trainer_id == -1 for pod in forecast.cluster.trainers(owner))


def test_what_the_api_server_refuses_is_refused_again() -> None:
    """A forecast cannot know whether a quota will be raised."""
    owner = job("net", 1, 4)
    backoff = CreationBackoff(1, NOW_S - 9, NOW_S - 1, 1, "exceeded quota")
    history = History(creation_backoffs={owner.uid: backoff})
    forecast = _forecast([node("n0", 20)], [owner], trainers(owner, ["n0"]), history)
    last = forecast.settle()
    assert _count(forecast, owner) == 1
    assert last.jobs[0].reason is Reason.REFUSED


def test_a_forecast_that_never_rests_ends_nevertheless() -> None:
    """After the given number of steps."""
    owner = job("net", 1, 10)
    forecast = _forecast([node("n0", 200)], [owner])
    forecast.settle(1)
    assert 0 < _count(forecast, owner) <= 10
    assert forecast.now_s > NOW_S


def test_the_history_goes_on() -> None:
    """What was remembered until now counts in the first plan: a cooling node gets no trainer."""
    owner = job("net", 1, 4)
    history = History(cooling={"n0": NOW_S + 20}, tainted_since={("n0", "x"): 1.0})
    pods = trainers(owner, ["n0"])
    forecast = _forecast([node("n0", 20)], [owner], pods, history)
    new_plan, _ = forecast.step()
    assert new_plan == plan(
        ClusterState.of(Snapshot((node("n0", 20),), tuple(pods), (owner,))), _FULL, NOW_S, history
    )
    assert all(create.tier is not Tier.SURPLUS for create in new_plan.creates)
