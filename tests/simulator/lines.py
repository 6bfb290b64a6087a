"""Random queues: the order in which waiting jobs are said to start, beside that in which they do."""

from collections.abc import Iterable
from random import Random

from policy.cluster.snapshot import Job, Phase
from policy.document.model import Admission, AdmissionOrder, Policy
from policy.planning.plan import Plan
from policy.planning.plan_input import PlanInput
from policy.planning.waiting_line import line
from simulator.cluster import PodChange
from simulator.run import play
from simulator.workload import Arrival, Workload
from tests.support.builders import job, node

ASKED_S = 100.0
END_S = 2_500.0


def case(seed: int) -> tuple[int, int, int]:
    """One random queue, full twice over, of jobs that run for two and a half to ten minutes.

    Returns:
        Pairs of waiting jobs that started in the order that was said; pairs about which an order was
        said; all pairs of waiting jobs.
    """
    random = Random(seed)  # noqa: S311 - repeatable on purpose
    cluster = tuple(node(f"n{i}", random.choice((17, 18, 32))) for i in range(random.randint(3, 8)))
    arrivals = _arrivals(random, sum(each.allocatable["cpu"] for each in cluster) / 1000)
    order = random.choice((AdmissionOrder.BEST_EFFORT, AdmissionOrder.STRICT_FIFO))
    policy = Policy(admission=Admission(order=order, after_seconds=0.0))
    taken: list[PlanInput] = []

    def observe(plan_input: PlanInput, _: Plan) -> None:
        if plan_input.at_s % 86_400 <= ASKED_S:
            taken[:] = [plan_input]

    changes = play(Workload(cluster, tuple(arrivals), END_S), policy, observe=observe)
    started = _started([each.job for each in arrivals if each.job is not None], changes)
    places = {p.plan.key: p for p in line(taken[-1]) if p.plan.key in started}
    said = [
        (first, second)
        for second in places
        for first in places[second].ahead
        if first in started and abs(started[first] - started[second]) > 1.0
    ]
    right = sum(started[first] < started[second] for first, second in said)
    return right, len(said), len(places) * (len(places) - 1) // 2


def _arrivals(random: Random, cpu: float) -> list[Arrival]:
    """Jobs whose minimums request twice the CPU of the cluster, within 80 s."""
    arrivals: list[Arrival] = []
    requested = 0.0
    while requested <= 2.0 * cpu:
        low, size = random.randint(1, 6), random.choice((2, 3, 4, 5))
        requested += low * size
        submitted = job(f"job-{len(arrivals)}", low, low + random.randint(0, 6), cpu=size)
        at_s = 40.0 * requested / cpu
        arrivals.append(Arrival(at_s, job=submitted, runs_s=random.uniform(150.0, 600.0)))
    return arrivals


def _started(jobs: Iterable[Job], changes: Iterable[PodChange]) -> dict[str, float]:
    """Job key -> when the trainers of its minimum had all run."""
    by_uid = {each.uid: each for each in jobs}
    running: dict[str, set[str]] = {uid: set() for uid in by_uid}
    started: dict[str, float] = {}
    for change in changes:
        owner = by_uid.get(change.pod.owner_uid)
        if owner is None or change.new is None or change.new.phase is not Phase.RUNNING:
            continue
        running[owner.uid].add(change.new.uid)
        if len(running[owner.uid]) >= owner.min_trainers:
            started.setdefault(owner.key, change.at_s)
    return started
