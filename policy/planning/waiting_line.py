"""The order in which waiting jobs start, and the jobs that must end first. Pure.

Nobody knows how long jobs will run. So running jobs end one after another on copies of the cluster, in a
different order on each copy, and plans show which waiting jobs start after each end. The result contains
only facts on which nearly all copies agree, so each job has a range of places in the line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from zlib import crc32

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job
from policy.planning.forecast import Forecast
from policy.planning.plan import JobPlan
from policy.planning.plan_input import PlanInput

SCENARIOS = 12
_DISSENTERS = 1
"""Number of scenarios that may disagree with a fact; measured in docs/decisions/0060."""
MAX_ENDS = 60
"""Most steps in which jobs end in one scenario; if there are more jobs, several end in one step."""
_LARGE = 500
"""Clusters with more nodes than this get fewer and shorter scenarios, to answer in less than a minute."""
_LARGE_SCENARIOS, _LARGE_ENDS = 2, 8
_CATCH_UP, _LARGE_CATCH_UP = 3, 1
"""Number of forecast steps after an end, in which plans use the freed capacity."""
_SPREAD = 2.0
"""How much longer than others a job may run in a scenario, as a multiple of the oldest job's age."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place in the line of a job that lacks trainers of its minimum."""

    plan: JobPlan
    """The job's entry in the plan."""
    missing: int
    """Number of guaranteed trainers that it lacks."""
    first: int
    last: int
    """The job's place is between `first` and `last`; the job that starts first has place 1."""
    ends: int | None
    """Median number of running jobs that end before it starts; 0 if it starts now. None if it does not
    start even when all jobs have ended: services must leave, or its reason in the plan says more."""
    ahead: tuple[str, ...]
    """Keys of the jobs that start before it in nearly all scenarios."""


def line(plan_input: PlanInput) -> list[Place]:
    """Returns the jobs that wait for their minimum, in the order in which they will start."""
    now = plan_input.plan()
    jobs = plan_input.cluster().jobs
    waiting = {
        job_plan.key: job_plan for job_plan in now.jobs if _waits(jobs[job_plan.key], job_plan)
    }
    if not waiting:
        return []
    scenarios = _scenarios(plan_input, waiting)
    middle = {
        key: sorted(scenario[key] for scenario in scenarios)[len(scenarios) // 2] for key in waiting
    }

    def rank(key: str) -> tuple[float, float, str]:
        return middle[key], jobs[key].created_s, key

    order = sorted(waiting, key=rank)
    ahead = {key: [other for other in order if _before(scenarios, other, key)] for key in order}
    behind = {key: sum(key in ahead[other] for other in order) for key in order}
    return [
        Place(
            waiting[key],
            jobs[key].min_trainers - waiting[key].live,
            first=1 + len(ahead[key]),
            last=len(order) - behind[key],
            ends=None if middle[key] == inf else int(middle[key]),
            ahead=tuple(ahead[key]),
        )
        for key in order
    ]


def _waits(job: Job, job_plan: JobPlan) -> bool:
    return not (job.stopped or job.error) and job_plan.live < job.min_trainers


def _before(scenarios: Sequence[Mapping[str, float]], first: str, second: str) -> bool:
    allowed = _DISSENTERS if len(scenarios) >= SCENARIOS else 0
    agreeing = sum(scenario[first] < scenario[second] for scenario in scenarios)
    return agreeing >= len(scenarios) - allowed


def _scenarios(plan_input: PlanInput, waiting: Mapping[str, JobPlan]) -> list[dict[str, float]]:
    """Returns, for each scenario, waiting job -> number of jobs that have ended before it starts.

    The numbers of jobs that start together differ by fractions, in the order of the plan.
    """
    large = len(plan_input.snapshot.nodes) > _LARGE
    number, max_ends = (_LARGE_SCENARIOS, _LARGE_ENDS) if large else (SCENARIOS, MAX_ENDS)
    return [_Scenario(plan_input, waiting, salt).starts(max_ends) for salt in range(number)]


class _Scenario:
    """One order in which running jobs end."""

    def __init__(self, plan_input: PlanInput, waiting: Mapping[str, JobPlan], salt: int) -> None:
        self._forecast = Forecast(plan_input)
        self._waiting = waiting
        self._salt = salt
        self._large = len(plan_input.snapshot.nodes) > _LARGE
        self._start_s = self._forecast.now_s
        self._starts: dict[str, float] = {}
        self._priorities = {queue.name: queue.priority for queue in plan_input.policy.queues}

    def starts(self, max_ends: int) -> dict[str, float]:
        cluster, waiting = self._forecast.cluster, self._waiting
        self._run(0)
        together = max(1, -(-len(cluster.jobs) // max_ends))
        ends = 0
        while len(self._starts) < len(waiting) and (running := self._running()[:together]):
            for key in running:
                self._forecast.end(key)
            ends += len(running)
            self._run(ends)
        return {key: self._starts.get(key, inf) for key in waiting}

    def _run(self, ends: int) -> None:
        """Plans after an end, and records which waiting jobs have started."""
        jobs = self._forecast.cluster.jobs
        for _ in range(_LARGE_CATCH_UP if self._large else _CATCH_UP):
            _, changed = self._forecast.step()
            if not changed:
                break
        new = [
            key
            for key in self._waiting
            if key not in self._starts
            and key in jobs
            and _has_minimum(self._forecast.cluster, jobs[key])
        ]
        new.sort(key=self._rank)
        for position, key in enumerate(new):
            self._starts[key] = ends + position / len(new)

    def _rank(self, key: str) -> tuple[int, float, str]:
        """Returns the sort key of jobs that start with the same plan."""
        job = self._forecast.cluster.jobs[key]
        return -self._priorities.get(job.queue, 0), job.created_s, key

    def _running(self) -> list[str]:
        """Returns the keys of running jobs, in the order in which they end in this scenario."""
        cluster = self._forecast.cluster
        oldest = {
            key: min((pod.started_s for pod in cluster.trainers(job) if pod.node), default=None)
            for key, job in cluster.jobs.items()
        }
        started = {key: s for key, s in oldest.items() if s is not None}
        span_s = self._start_s - min(started.values(), default=self._start_s)
        return sorted(started, key=lambda key: (started[key] + span_s * self._luck(key), key))

    def _luck(self, key: str) -> float:
        """Returns how much longer than others a job runs here, as a multiple of the oldest job's age."""
        return _SPREAD * crc32(f"{self._salt} {key}".encode()) / 2**32 if self._salt else 0.0


def _has_minimum(cluster: ClusterState, job: Job) -> bool:
    """Returns whether all trainers of a job's minimum have nodes."""
    return sum(1 for pod in cluster.trainers(job) if pod.node) >= job.min_trainers
