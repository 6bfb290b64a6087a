"""Makes a plan without the objects whose data makes the planner fail. Pure.

All jobs and service pods that rules read in detail are first replaced by inert ones, with which the planner
normally succeeds. Then they are restored in groups, which grow while plans succeed and shrink after a failure.
An object that makes the planner fail by itself is a culprit and stays inert. Objects that were part of
an earlier plan come first, so that new objects cannot cost others their plan. Trials and time are
limited; objects that were not examined in time are left out of this plan and examined with the next.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, Pod
from policy.planning.plan import Plan
from reconciler.quarantine import inert

MAX_TRIALS = 64
_GROWTH = 4
"""Factor by which the group size grows after a plan that includes the group has succeeded."""
MAX_SEARCH_S = 3.0
"""Time limit of a search: much shorter than a lease, so that the leader does not lose its lease meanwhile."""


@dataclass(frozen=True, slots=True)
class IsolatedPlan:
    """A plan, and the objects that it had to leave out."""

    plan: Plan
    """Contains no job plans for culprits or for jobs that were not examined; requests the next plan soon."""
    culprits: tuple[tuple[Job | Pod, Exception], ...]
    """Objects that made the planner fail, each with its error."""


def plan_without_culprits(
    cluster: ClusterState,
    make_plan: Callable[[], Plan],
    proven: Collection[str],
    clock_s: Callable[[], float],
) -> IsolatedPlan:
    """Returns a plan of all objects that do not make the planner fail; restores the cluster state.

    Args:
        cluster: The state that `make_plan` reads.
        make_plan: Makes a plan from the cluster state; any exception is a failure.
        proven: uids of objects that were part of an earlier plan.
        clock_s: A monotonic clock, for the time limit.

    Raises:
        Exception: The error of `make_plan`, if it fails even without all these objects.
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
    """The progress of one search, and the newest plan."""

    def __init__(
        self, cluster: ClusterState, make_plan: Callable[[], Plan], suspects: Sequence[Job | Pod]
    ) -> None:
        self._cluster = cluster
        self._make_plan = make_plan
        self._suspects = suspects
        self.plan = make_plan()
        self.examined = 0
        self._failing_end = 0
        """If greater than `examined`, there is a culprit among the suspects up to this index."""
        self.culprits: list[tuple[Job | Pod, Exception]] = []

    def run(self, step: int, clock_s: Callable[[], float]) -> None:
        """Restores suspects, at first `step` at a time, until all are examined or a limit is reached."""
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
        """Restores a group if a plan can be made with it; returns whether it can."""
        for suspect in group:
            _put(self._cluster, suspect)
        try:
            self.plan = self._make_plan()
        except Exception as error:  # noqa: BLE001 - any error means that the group has a culprit
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
    """Returns the objects that rules read in detail: proven ones first, jobs before service pods."""
    pods = {**cluster.waiting, **cluster.resizing, **cluster.leaving}
    suspects: list[Job | Pod] = [job for job in cluster.jobs.values() if not job.quarantined]
    suspects += [pod for pod in pods.values() if not pod.is_training]
    return sorted(suspects, key=lambda suspect: suspect.uid not in proven)


def _put(cluster: ClusterState, record: Job | Pod) -> None:
    if isinstance(record, Job):
        cluster.put_job(record)
    else:
        cluster.put_pod(record)
