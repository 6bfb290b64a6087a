"""In which order waiting jobs start, and what must leave before."""

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, Node, Pod, ServerSpec, Snapshot
from policy.document.model import Admission, AdmissionOrder, Policy, Reserve
from policy.planning import waiting_line
from policy.planning.must_leave import MustLeave, must_leave
from policy.planning.plan_input import PlanInput
from policy.planning.waiting_line import Place, line
from policy.reasons import Reason
from tests.support.builders import NOW_S, job, node, server, service, trainers

_FIFO = Policy(
    reserve=Reserve(max_load={"cpu": 1.0}),
    admission=Admission(order=AdmissionOrder.STRICT_FIFO, after_seconds=0.0),
)


def _cluster(nodes: list[Node], jobs: list[Job], pods: list[Pod]) -> ClusterState:
    return ClusterState.of(Snapshot(tuple(nodes), tuple(pods), tuple(jobs)))


def _line(cluster: ClusterState, policy: Policy = _FIFO) -> list[Place]:
    return line(PlanInput.of(cluster, policy, NOW_S))


def _queue() -> tuple[ClusterState, list[Job]]:
    """Two nodes, full of the minimums of two jobs; three more wait."""
    running = [job("run-0", 4, 4), job("run-1", 4, 4, created_s=NOW_S - 3000)]
    waiting = [
        job("wait-old", 2, 4, created_s=NOW_S - 300),
        job("wait-mid", 4, 4, created_s=NOW_S - 200),
        job("wait-new", 1, 4, created_s=NOW_S - 100),
    ]
    pods = [*trainers(running[0], ["n0"] * 4), *trainers(running[1], ["n1"] * 4)]
    return _cluster([node("n0", 20), node("n1", 20)], [*running, *waiting], pods), waiting


def test_jobs_start_in_order_of_age_where_the_policy_says_so() -> None:
    """The oldest with the first job that ends; a younger small one beside it; what is not known is open."""
    cluster, _ = _queue()
    places = _line(cluster)

    assert [place.plan.key for place in places] == ["ml/wait-old", "ml/wait-mid", "ml/wait-new"]
    assert [(place.first, place.last) for place in places] == [(1, 1), (2, 2), (3, 3)]
    assert places[2].ahead == ("ml/wait-old", "ml/wait-mid")
    assert places[0].ends == 1
    assert places[0].missing == 2
    assert places[0].plan.reason is Reason.WAITING_FOR_ROOM


def test_what_fits_now_starts_now() -> None:
    """Nothing must end for it; one that no end helps has no number."""
    fits, never = job("fits", 1, 2), job("never", 1, 2, cpu=50)
    (first, last) = _line(_cluster([node("n0", 20)], [fits, never], []))
    assert (first.plan.key, first.ends, first.ahead) == ("ml/fits", 0, ())
    assert (last.plan.key, last.ends, last.last) == ("ml/never", None, 2)


def test_a_job_that_no_job_makes_room_for_comes_last() -> None:
    """All jobs end in every scenario, and it has not started."""
    running, never = job("run", 1, 1), job("never", 1, 2, cpu=50)
    cluster = _cluster([node("n0", 5)], [running, never], trainers(running, ["n0"]))
    assert [place.ends for place in _line(cluster)] == [None]


def test_nobody_waits() -> None:
    """Jobs with their minimum, suspended and invalid ones are in no line."""
    running = job("run", 1, 1)
    jobs = [running, job("off", suspended=True), job("bad", error="x")]
    assert _line(_cluster([node("n0", 20)], jobs, trainers(running, ["n0"]))) == []


def test_large_clusters_are_looked_at_less_often() -> None:
    """An answer comes with fewer plans there: several jobs end at one time, in fewer scenarios."""
    cluster, _ = _queue()
    for number in range(600):
        cluster.put_node(node(f"closed-{number}", 1, unschedulable=True))
    places = _line(cluster)
    assert places[0].plan.key == "ml/wait-old"


def test_one_of_several_jobs_is_enough() -> None:
    """Each whose end gives room; the longest-running first."""
    cluster, (old, mid, _) = _queue()
    assert must_leave(cluster, _FIFO, old, 2) == MustLeave(2, any_of=("ml/run-0", "ml/run-1"))
    assert must_leave(cluster, _FIFO, mid, 8) == MustLeave(8, all_of=("ml/run-0", "ml/run-1"))


def test_only_services_could_leave() -> None:
    """Where all jobs together are not enough."""
    waiting, small = job("wait", 3, 3), job("small", 1, 1)
    pods = [service("web", 15, "n0"), *trainers(small, ["n0"])]
    cluster = _cluster([node("n0", 20)], [waiting, small], pods)
    lacking = must_leave(cluster, _FIFO, waiting, 3)
    assert lacking == MustLeave(3)
    assert lacking.services


def test_surplus_and_closed_nodes_do_not_count() -> None:
    """The plan takes surplus for a minimum without asking; room that a job may not use is none."""
    grown, elsewhere, waiting = job("grown", 1, 4), job("else", 1, 1), job("wait", 1, 1)
    pods = [*trainers(grown, ["n0"] * 4), *trainers(elsewhere, ["n1"])]
    nodes = [node("n0", 20), node("n1", 5, unschedulable=True)]
    cluster = _cluster(nodes, [grown, elsewhere, waiting], pods)
    cluster.put_job(job("empty", 1, 1))
    assert must_leave(cluster, _FIFO, waiting, 1) == MustLeave(0)
    assert must_leave(cluster, _FIFO, waiting, 4) == MustLeave(1, any_of=("ml/grown",))
    assert must_leave(cluster, _FIFO, waiting, 9) == MustLeave(6)


def test_servers_leave_with_their_job() -> None:
    """Their room counts as their trainers' does."""
    owner = job("ps", 1, 1, cpu=1, servers=ServerSpec(1, {"cpu": 9000, "pods": 1}))
    pods = [*trainers(owner, ["n0"]), server(owner, 0, "n0")]
    cluster = _cluster([node("n0", 10)], [owner, waiting := job("wait", 2, 2)], pods)
    assert must_leave(cluster, _FIFO, waiting, 2) == MustLeave(2, any_of=("ml/ps",))


def test_one_scenario_of_twelve_may_say_otherwise() -> None:
    """Two may not, and of the few scenarios of large clusters none."""
    first, otherwise = {"a": 1.0, "b": 2.0}, {"a": 2.0, "b": 1.0}
    cases = [
        (11 * [first] + [otherwise], True),
        (10 * [first] + 2 * [otherwise], False),
        (2 * [first], True),
        ([first, otherwise], False),
    ]
    for scenarios, is_said in cases:
        assert waiting_line._before(scenarios, "a", "b") is is_said  # noqa: SLF001 - what places rest on
