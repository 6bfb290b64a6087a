"""Makes a plan where the data of some object makes the planner fail: without that object. Pure.

Every job and every service pod that a rule looks at closely is replaced by an inert one, which gives
a plan; then they come back, at first many at a time, and where the plan fails again, fewer. One that
makes it fail alone is a culprit and stays inert. Those that made a plan before come first, so that
new objects cost nobody a plan. Both trials and time are bounded: what was not examined in time has
no part in this plan, and is examined with the next.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, Pod
from policy.planning.plan import Plan
from reconciler.quarantine import inert

MAX_TRIALS = 64
_GROWTH = 4
"""How much larger the next group is after one with which a plan is made."""
MAX_SEARCH_S = 3.0
"""Far less than a lease lasts: a plan that is late is better than none."""


@dataclass(frozen=True, slots=True)
class IsolatedPlan:
    """A plan, and what it had to leave out."""

    plan: Plan
    """Without job plans of culprits and of jobs that were not examined; the next should be soon."""
    culprits: tuple[tuple[Job | Pod, Exception], ...]
    """Objects that made the planner fail, each with its error."""


def plan_without_culprits(
    cluster: ClusterState,
    make_plan: Callable[[], Plan],
    proven: Collection[str],
    clock_s: Callable[[], float],
) -> IsolatedPlan:
    """A plan of all objects that do not make the planner fail; leaves the cluster as it was.

    Args:
        cluster: The state that `make_plan` reads.
        make_plan: Makes a plan; any exception is a failure.
        proven: uids of objects that were part of an earlier plan.
        clock_s: A monotonic clock, for the limit of time.

    Raises:
        Exception: that of `make_plan`, where it fails without all of these objects, too.
    """
    suspects = _suspects(cluster, proven)
    for suspect in suspects:
        _put(cluster, inert(suspect, "not examined"))
    try:
        search = _Search(cluster, make_plan, suspects)
        search.run(max(1, sum(suspect.uid in proven for suspect in suspects)), clock_s)
    finally:
        for suspect in suspects:
            _put(cluster, suspect)
    left_out = {suspect.key for suspect in suspects[search.examined :]}
    left_out |= {culprit.key for culprit, _ in search.culprits}
    jobs = tuple(job for job in search.plan.jobs if job.key not in left_out)
    new_plan = replace(search.plan, jobs=jobs, deferred=True)
    return IsolatedPlan(new_plan, tuple(search.culprits))


class _Search:
    """The state of one search: how far the suspects are examined, and the newest plan."""

    def __init__(
        self, cluster: ClusterState, make_plan: Callable[[], Plan], suspects: Sequence[Job | Pod]
    ) -> None:
        self._cluster = cluster
        self._make_plan = make_plan
        self._suspects = suspects
        self.plan = make_plan()
        self.examined = 0
        self._failing_end = 0
        """Above `examined`: among the suspects up to here is a culprit."""
        self.culprits: list[tuple[Job | Pod, Exception]] = []

    def run(self, step: int, clock_s: Callable[[], float]) -> None:
        """Brings suspects back, `step` at first, until all are examined or a limit is reached."""
        end_s = clock_s() + MAX_SEARCH_S
        for _ in range(MAX_TRIALS):
            if self.examined == len(self._suspects) or clock_s() >= end_s:
                return
            remaining = self._failing_end - self.examined
            size = max(1, remaining // 2) if remaining > 0 else step
            is_planned = self._try(self._suspects[self.examined : self.examined + size])
            if remaining <= 0:
                step = _GROWTH * step if is_planned else 1

    def _try(self, group: Sequence[Job | Pod]) -> bool:
        """Brings a group back if a plan is made then; returns whether one is."""
        for suspect in group:
            _put(self._cluster, suspect)
        try:
            self.plan = self._make_plan()
        except Exception as error:  # noqa: BLE001 - whatever it is, it came of the group
            for suspect in group:
                _put(self._cluster, inert(suspect, "not examined"))
            self._failing_end = self.examined + len(group)
            if len(group) == 1:
                self.culprits.append((group[0], error))
                self.examined += 1
            return False
        self.examined += len(group)
        return True


def _suspects(cluster: ClusterState, proven: Collection[str]) -> list[Job | Pod]:
    """Jobs and the service pods whose details rules read: proven ones first, jobs before pods."""
    pods = {**cluster.waiting, **cluster.resizing, **cluster.leaving}
    suspects: list[Job | Pod] = [job for job in cluster.jobs.values() if not job.quarantined]
    suspects += [pod for pod in pods.values() if not pod.is_training]
    return sorted(suspects, key=lambda suspect: suspect.uid not in proven)


def _put(cluster: ClusterState, record: Job | Pod) -> None:
    if isinstance(record, Job):
        cluster.put_job(record)
    else:
        cluster.put_pod(record)
