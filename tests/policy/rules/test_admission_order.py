"""Minimums that wait for room, and the younger jobs that would take it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.cluster.snapshot import Job, Node, Phase, Pod
from policy.document.model import Admission, AdmissionOrder, NodePool, Policy, Reserve
from policy.document.queue_model import Quota
from policy.names import Tier
from policy.planning.plan import Head, History, Line, Plan
from policy.planning.planner import plan
from policy.planning.recent_history import RecentHistory
from policy.reasons import Reason
from tests.support.builders import (
    LONG_AGO_S,
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
from tests.support.simulate import ROUND_S, Cluster

_FIFO = Policy(
    reserve=Reserve(max_load={}),
    admission=Admission(order=AdmissionOrder.STRICT_FIFO, after_seconds=300, hold_seconds=600),
)
_BEST_EFFORT = Policy(reserve=Reserve(max_load={}))
_BIG = job("big", 2, 2, cpu=4, created_s=NOW_S - 900.0)
_SMALL = job("small", 1, 1, cpu=1, created_s=NOW_S - 5.0)
_BUSY = job("busy", 1, 1, cpu=3, created_s=LONG_AGO_S)
_NODES = [node("n0", 4), node("n1", 4)]
_PODS = trainers(_BUSY, ["n0"])


def _line(waited_s: float = 300.0) -> Line:
    return Line({_BIG.uid: NOW_S - waited_s})


def _plan(
    *jobs: Job,
    line: Line | None = None,
    policy: Policy = _FIFO,
    nodes: list[Node] = _NODES,
    pods: list[Pod] = _PODS,
) -> Plan:
    history = History(line=_line() if line is None else line)
    return plan(cluster_state(nodes, [_BUSY, *jobs], pods), policy, NOW_S, history)


def _started(new_plan: Plan) -> set[str]:
    return {create.job.removeprefix("ml/") for create in new_plan.creates}


def _reasons(new_plan: Plan) -> dict[str, Reason]:
    return {job_plan.key.removeprefix("ml/"): job_plan.reason for job_plan in new_plan.jobs}


def _detail(new_plan: Plan, name: str) -> str:
    return next(j.detail for j in new_plan.jobs if j.key == f"ml/{name}")


def test_by_default_younger_jobs_start_in_the_room_that_an_older_one_waits_for() -> None:
    """However long it has waited: the minimum of two does not fit beside one of 3 CPU."""
    new_plan = _plan(_BIG, _SMALL, policy=_BEST_EFFORT)

    assert _started(new_plan) == {"small"}
    assert new_plan.line == Line()


def test_in_strict_order_no_younger_job_starts_on_nodes_that_an_older_one_waits_for() -> None:
    """Once that has waited for a while; both conditions say so."""
    new_plan = _plan(_BIG, _SMALL)

    assert _started(new_plan) == set()
    assert _reasons(new_plan) == {
        "big": Reason.WAITING_FOR_ROOM,
        "busy": Reason.AT_MAX,
        "small": Reason.QUEUED,
    }
    assert _detail(new_plan, "big") == (
        "no capacity for 1 guaranteed trainer (4 cpu each); nodes are held until 1970-01-02T03:56:40Z"
    )
    assert _detail(new_plan, "small") == (
        "ml/big is older and waits for capacity; nodes are held for it until 1970-01-02T03:56:40Z"
    )
    assert new_plan.line.head == Head(_BIG.key, _BIG.uid, NOW_S)


def test_a_job_that_has_waited_shorter_holds_nothing() -> None:
    """Most minimums find room in minutes."""
    assert _started(_plan(_BIG, _SMALL, line=_line(waited_s=299.0))) == {"small"}
    assert _plan(_BIG, _SMALL, line=Line()).line.blocked_since == {_BIG.uid: NOW_S}


def test_a_job_that_waits_is_told_from_when_on_nodes_are_held() -> None:
    """Not before a pause after a hold in vain is over, and no time that has passed."""
    held_from = "nodes are held from 1970-01-02T03:51:40Z on"

    assert held_from in _detail(_plan(_BIG, line=Line()), "big")
    assert held_from in _detail(_plan(_BIG, line=_line(0.0)), "big")
    paused = replace(_line(600.0), vain={"ml/other": (1, NOW_S + 300.0)})
    assert held_from in _detail(_plan(_BIG, line=paused), "big")
    too_small = _plan(_BIG, nodes=[node("n0", 4)], pods=[service("web", 1, "n0")])
    assert "held" not in _detail(too_small, "big")
    assert "held" not in _detail(_plan(_BIG, policy=_BEST_EFFORT), "big")


def test_older_jobs_start_before_the_head_of_the_line() -> None:
    """It may have come to the head because they asked in vain before."""
    assert _started(_plan(_BIG, replace(_SMALL, created_s=1.0))) == {"small"}


def test_a_running_job_gets_back_what_it_lost_while_nodes_are_held() -> None:
    """A minimum that has started is guaranteed."""
    running = job("running", 2, 2, cpu=1)

    pods = [*_PODS, trainer(running, 0, "n0", Tier.GUARANTEED)]

    assert _started(_plan(_BIG, running, pods=pods)) == {"running"}


def test_held_nodes_are_used_by_surplus() -> None:
    """It gives way when the older job starts, so no capacity is idle."""
    growing = replace(_BUSY, max_trainers=3, requests=_SMALL.requests)

    pods = [trainer(growing, 0, "n0", Tier.GUARANTEED)]
    state = cluster_state(_NODES, [growing, _BIG], pods)
    new_plan = plan(state, _FIFO, NOW_S, History(line=_line()))

    assert {create.tier for create in new_plan.creates if create.job == growing.key} == {
        Tier.SURPLUS
    }


def test_nodes_that_the_older_job_cannot_use_are_not_held() -> None:
    """They are too small for it, or closed to it: younger jobs start there, servers included."""
    younger = replace(_SMALL, servers=servers(1, 0.5))
    nodes = [*_NODES, node("n2", 2)]

    assert _started(_plan(_BIG, younger, nodes=nodes)) == {"small"}
    assert _started(_plan(_BIG, replace(younger, servers=servers(1, 3)), nodes=nodes)) == set()


def test_nodes_outside_of_the_pools_of_trainers_are_no_room_for_a_minimum() -> None:
    """They never become free for it, so nothing is held."""
    pools = _FIFO.model_copy(update={"node_pools": (NodePool(name="p", labels={"pool": "p"}),)})
    nodes = [node("n0", 4, labels={"pool": "p"}), node("n1", 4)]

    new_plan = _plan(_BIG, _SMALL, policy=pools, nodes=nodes)

    assert _started(new_plan) == {"small"}
    assert new_plan.line.head is None


@pytest.mark.parametrize(
    ("nodes", "pods"),
    [
        ([node("n0", 4), node("n1", 2)], []),
        (_NODES, [service("web", 1, "n1")]),
    ],
    ids=["the cluster is too small", "a service is in the way"],
)
def test_a_job_that_could_not_start_without_all_others_holds_nothing(
    nodes: list[Node], pods: list[Pod]
) -> None:
    """Jobs that end would not help it."""
    new_plan = _plan(_BIG, _SMALL, nodes=nodes, pods=[*_PODS, *pods])

    assert _started(new_plan) == {"small"}
    assert new_plan.line.head is None


def test_servers_count_for_what_a_job_needs() -> None:
    """A cluster without room for them never starts the job; other jobs' servers end with their jobs."""
    busy = replace(_BUSY, servers=servers(1, 1))
    pods = [*_PODS, server(busy, 0, "n1"), server(busy, 1, "n1", deleting=True)]
    one = replace(_BIG, min_trainers=1, max_trainers=1)

    def head(count: int, cpu: float) -> Head | None:
        waiting = replace(one, servers=servers(count, cpu))
        state = cluster_state(_NODES, [busy, waiting], pods)
        return plan(state, _FIFO, NOW_S, History(line=_line())).line.head

    assert head(1, 5) is None
    assert head(2, 4) is not None


def test_what_a_job_lacks_besides_room_holds_nothing() -> None:
    """A quota that is used up frees itself by no job's end on a node."""
    policy = _FIFO.model_copy(update={"quotas": (Quota(namespace="ml", requests={"cpu": "5"}),)})

    new_plan = _plan(_BIG, _SMALL, policy=policy, line=Line())

    assert _reasons(new_plan)["big"] is Reason.QUOTA_REACHED
    assert new_plan.line.blocked_since == {}


def _holding(since_s: float) -> Line:
    return replace(_line(), head=Head(_BIG.key, _BIG.uid, since_s))


def test_a_hold_ends_after_a_while_and_is_followed_by_as_long_a_pause() -> None:
    """A job whose nodes never become free delays the others, and does not stop them."""
    ended = _plan(_BIG, _SMALL, line=_holding(NOW_S - 600.0))

    assert _started(ended) == {"small"}
    assert ended.line.head is None
    assert ended.line.vain == {_BIG.key: (1, NOW_S + 600.0)}
    assert _plan(_BIG, _SMALL, line=_holding(NOW_S - 599.0)).line.head is not None


def test_a_hold_ends_early_where_the_job_goes_or_waits_for_something_else() -> None:
    """The pause is as short as the hold was."""
    gone = _plan(_SMALL, line=_holding(NOW_S - 60.0))
    refused = _plan(_BIG, _SMALL, line=replace(_holding(NOW_S - 60.0), blocked_since={}))

    half = _plan(
        _BIG,
        line=replace(_holding(NOW_S - 60.0), blocked_since={}),
        pods=[*_PODS, trainer(_BIG, 0, "n1", Tier.GUARANTEED)],
    )

    assert gone.line.vain == refused.line.vain == {_BIG.key: (1, NOW_S + 60.0)}
    assert half.line.vain == gone.line.vain
    assert _started(gone) == _started(refused) == {"small"}


def test_a_job_that_has_started_ends_its_hold_without_a_pause() -> None:
    """The next in line is the head at once."""
    next_one = job("next", 2, 2, cpu=3, created_s=NOW_S - 800.0)
    started = trainers(_BIG, ["n0", "n1"])
    line = Line({next_one.uid: NOW_S - 400.0}, Head(_BIG.key, _BIG.uid, NOW_S - 60.0))

    new_plan = plan(
        cluster_state(_NODES, [_BIG, next_one], started), _FIFO, NOW_S, History(line=line)
    )

    assert new_plan.line.head == Head(next_one.key, next_one.uid, NOW_S)
    assert new_plan.line.vain == {}


def test_namespaces_whose_jobs_held_nodes_in_vain_come_last() -> None:
    """Of equal ones the oldest; in a namespace the job with the fewest holds in vain."""
    theirs = replace(_BIG, namespace="others", uid="theirs", created_s=NOW_S - 10.0)
    second = replace(_BIG, name="second", uid="second", created_s=NOW_S - 800.0)
    waited = dict.fromkeys((_BIG.uid, "theirs", "second"), NOW_S - 400.0)

    def head(vain: dict[str, tuple[int, float]]) -> str:
        new_plan = _plan(_BIG, theirs, second, line=Line(waited, vain=vain))
        return new_plan.line.head.key if new_plan.line.head else ""

    assert head({}) == "ml/big"
    assert head({"ml/gone": (1, NOW_S)}) == "others/big"
    assert head({"ml/big": (1, NOW_S), "others/x": (2, NOW_S)}) == "ml/second"
    assert head({"ml/big": (1, NOW_S + 0.1)}) == ""


def test_only_so_many_holds_in_vain_are_remembered() -> None:
    """The newest: a tenant that creates and deletes jobs fills no memory."""
    vain = {f"ml/{number}": (1, float(number)) for number in range(256)}

    remembered = _plan(_SMALL, line=replace(_holding(NOW_S - 60.0), vain=vain)).line.vain

    assert len(remembered) == 256
    assert "ml/0" not in remembered
    assert remembered[_BIG.key] == (1, NOW_S + 60.0)


def test_the_history_hands_the_line_on() -> None:
    """From one plan to the next."""
    history = RecentHistory()
    new_plan = _plan(_BIG, _SMALL)

    history.record(new_plan, NOW_S, 5.0)

    assert history.history(NOW_S).line == new_plan.line


@settings(max_examples=4, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=12, max_size=12),
    st.lists(st.integers(2, 6), min_size=12, max_size=12),
)
def test_a_large_minimum_in_a_stream_of_small_jobs_starts_within_a_bounded_time(
    cpus: list[int], rounds: list[int]
) -> None:
    """After the wait that the policy states and the longest of the jobs that ran then."""
    cluster = _Stream(cpus, rounds)

    started = cluster.run(_FIFO, 10 + 6 + 6)

    assert started


class _Stream:
    """Two nodes, a job that needs both, and in each round as many small jobs as there is room for."""

    def __init__(self, cpus: list[int], rounds: list[int]) -> None:
        self._cpus, self._rounds = cpus, rounds
        self._cluster = Cluster([node("n0", 4), node("n1", 4)], [])
        self._history = RecentHistory()
        self._ends: dict[str, int] = {}

    def run(self, policy: Policy, rounds: int) -> bool:
        """Whether the big job has its minimum after so many rounds."""
        cluster = self._cluster
        for number in range(rounds):
            if number == 1:
                cluster.jobs[_BIG.key] = replace(_BIG, created_s=cluster.now_s)
            self._end(number)
            self._arrive(number)
            history = self._history.history(cluster.now_s)
            new_plan = plan(cluster.state(), policy, cluster.now_s, history)
            self._history.record(new_plan, cluster.now_s, 5.0)
            cluster.apply(new_plan)
            for create in new_plan.creates:
                self._ends.setdefault(create.job, number + self._rounds[number % 12])
            cluster.schedule(policy)
            cluster.now_s += ROUND_S
            if len(cluster.state().trainers(cluster.jobs.get(_BIG.key, _BIG))) == 2:
                return True
        return False

    def _arrive(self, number: int) -> None:
        for position in range(2):
            cpu = self._cpus[(2 * number + position) % 12]
            name = f"small-{number}-{position}"
            self._cluster.jobs[f"ml/{name}"] = job(
                name, 1, 1, cpu=cpu, created_s=self._cluster.now_s
            )

    def _end(self, number: int) -> None:
        for key in [key for key, end in self._ends.items() if end <= number]:
            del self._ends[key]
            ended = self._cluster.jobs.pop(key)
            self._cluster.pods = {
                uid: pod
                for uid, pod in self._cluster.pods.items()
                if pod.owner_uid != ended.uid and pod.phase is not Phase.FAILED
            }


def test_by_default_a_stream_of_small_jobs_starves_a_large_minimum() -> None:
    """Jobs of 2 CPU that run for three rounds, the two nodes never free at the same time."""
    assert not _Stream([2] * 12, [3] * 12).run(_BEST_EFFORT, 24)
    assert _Stream([2] * 12, [3] * 12).run(_FIFO, 24)
