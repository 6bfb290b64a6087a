"""Whole simulations, small enough to be followed by hand."""

from collections import Counter
from dataclasses import replace

from policy.cluster.snapshot import Phase
from policy.document.model import Admission, AdmissionOrder, Policy, Reserve
from policy.names import Tier
from simulator.cluster import DisruptionReason, PodChange
from simulator.run import play
from simulator.timing import Timing
from simulator.workload import Arrival, Workload
from tests.support.builders import job, node, service


def _workload(end_s: float = 60.0) -> Workload:
    """Two jobs, 20 s apart, on two nodes that hold three trainers each."""
    return Workload(
        nodes=(node("n1", 17), node("n2", 17)),
        arrivals=(
            Arrival(0.0, job=job("a", low=1, high=6)),
            Arrival(20.0, pods=(service("web", 1),), job=job("b", low=1, high=6)),
        ),
        end_s=end_s,
    )


def _running(changes: tuple[PodChange, ...], at_s: float) -> dict[str, int]:
    """Job -> running trainers that are not being deleted."""
    pods = {change.pod.uid: change.new for change in changes if change.at_s <= at_s}
    counts: dict[str, int] = {}
    for last in pods.values():
        if last is not None and last.phase is Phase.RUNNING and not last.deleting and last.job:
            counts[last.job] = counts.get(last.job, 0) + 1
    return counts


def test_the_first_job_takes_all_and_gives_half_to_the_second() -> None:
    """Six trainers run before the second job comes; each has three in the end."""
    changes = play(_workload())
    assert _running(changes, 19.0) == {"a": 6}
    assert _running(changes, 60.0) == {"a": 3, "b": 3}


def test_the_scheduler_makes_room_for_what_outranks_and_the_plan_for_fair_shares() -> None:
    """A master of 5 CPU and a guaranteed trainer preempt one trainer each; the plan releases one."""
    arrivals = (
        _workload().arrivals[0],
        replace(_workload().arrivals[1], pods=(service("web", 5),)),
    )
    changes = play(replace(_workload(), arrivals=arrivals), Policy(reserve=Reserve(max_load={})))
    whys = Counter(change.disruption for change in changes if change.new is None)
    assert whys == {DisruptionReason.EVICTED: 1, DisruptionReason.PREEMPTED: 2}
    assert sorted(_running(changes, 60.0).values()) == [2, 3]


def test_a_new_job_has_its_minimum_within_seconds() -> None:
    """The cluster is full when it comes; a trainer has to stop first."""
    changes = play(_workload())
    first = next(
        change.at_s
        for change in changes
        if change.new is not None
        and change.new.job == "b"
        and change.new.tier is Tier.GUARANTEED
        and change.new.phase is Phase.RUNNING
    )
    assert 20.0 < first < 23.0


def test_the_same_workload_plays_the_same_each_time() -> None:
    """Nothing in it is drawn or read from a clock."""
    assert play(_workload()) == play(_workload())


def test_times_are_those_that_were_asked_for() -> None:
    """A first trainer needs the write of its job, the gathering, the plan, a write, a bind, a start."""
    timing = Timing(write_s=1.0, gather_s=2.0, plan_s=4.0, bind_s=8.0, start_s=16.0)
    changes = play(replace(_workload(), end_s=60.0), timing=timing)
    first = next(change for change in changes if change.new and change.new.phase is Phase.RUNNING)
    assert first.at_s == 1.0 + 2.0 + 4.0 + 1.0 + 8.0 + 16.0


def test_services_get_room_that_is_released_ahead_of_the_scheduler() -> None:
    """A burst on a full cluster: the plan frees room for those that were not nominated yet."""
    burst = tuple(service(f"web-{number}", 5) for number in range(4))
    workload = replace(_workload(), arrivals=(*_workload().arrivals[:1], Arrival(30.0, pods=burst)))
    changes = play(workload, timing=Timing(preempt_s=1.0))
    bound = {change.new.name for change in changes if change.new and change.new.node}
    assert {pod.name for pod in burst} <= bound
    assert _running(changes, 60.0) == {"a": 2}
    whys = [change.disruption for change in changes if change.new is None]
    assert whys.count(DisruptionReason.EVICTED) >= 2


def test_a_large_minimum_starts_among_small_jobs_where_jobs_start_in_order() -> None:
    """Small jobs keep two nodes busy; the large one needs both, waits a minute, and gets them."""
    small = (
        Arrival(10.0 * number, job=job(f"small-{number}", 1, 1, cpu=8), runs_s=45.0)
        for number in range(18)
    )
    big = Arrival(25.0, job=job("big", 2, 2, cpu=16), runs_s=20.0)
    workload = replace(_workload(190.0), arrivals=(*small, big))
    in_order = Admission(order=AdmissionOrder.STRICT_FIFO, after_seconds=60.0)

    def first_run(admission: Admission) -> dict[str, float]:
        changes = play(workload, Policy(reserve=Reserve(max_load={}), admission=admission))
        running = [change for change in changes if change.new and change.new.ready]
        return {change.pod.job: change.at_s for change in reversed(running)}

    started = first_run(in_order)
    assert 85.0 < started["big"] < 85.0 + 45.0 + 10.0
    assert started["small-15"] > started["big"] + 20.0
    assert "big" not in first_run(Admission())


def test_a_minimum_of_a_hundred_starts_among_small_jobs_after_a_bounded_wait() -> None:
    """Within a minute and the time that the jobs run which were there when the hold began."""
    small = [
        Arrival(1.5 * number, job=job(f"small-{number}", 6, 6, cpu=1), runs_s=30.0)
        for number in range(80)
    ]
    big = Arrival(10.0, job=job("big", 100, 100, cpu=1), runs_s=10.0)
    nodes = tuple(node(f"n{number}", 11) for number in range(10))
    in_order = Admission(order=AdmissionOrder.STRICT_FIFO, after_seconds=40.0)
    policy = Policy(reserve=Reserve(max_load={}), admission=in_order)

    changes = play(Workload(nodes, (*small, big), 95.0), policy)

    ran = (change for change in changes if change.new and change.new.ready)
    started = {change.pod.job: change.at_s for change in reversed(list(ran))}
    assert started["small-20"] < 50.0  # younger, and before the hold
    assert 50.0 <= started["big"] < 50.0 + 30.0 + 5.0


def test_tiny_trainers_of_one_namespace_do_not_delay_the_growth_of_others() -> None:
    """Ten thousand are wanted, whose share is always the least; a job that comes later has its 40 soon."""
    tiny = Arrival(0.0, job=job("tiny", 1, 10_000, cpu=0.1, namespace="other"))
    large = Arrival(2.0, job=job("large", 1, 40, cpu=2))
    nodes = tuple(node(f"n{number}", 64, pods=250) for number in range(6))

    changes = play(Workload(nodes, (tiny, large), 10.0))

    counts = _running(changes, 10.0)
    assert counts["large"] == 40
    assert counts["tiny"] > 40
