"""Records observations of the loop: ends of jobs and trainers, bursts, and the reclaim objective."""

from collections.abc import Iterable, Mapping

from kube.object_change import ObjectChange
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, Pod
from policy.document.model import Objectives, ReclaimObjective
from policy.planning.plan import Release
from policy.reasons import Observation, Reason
from policy.records import CLUSTER, Record
from reconciler.metrics import ReconcilerMetrics
from reconciler.records.inbox import RecordInbox
from reconciler.records.objective import ObjectiveCounter
from reconciler.records.reclaims import Reclaims
from reconciler.records.service_starts import ServiceStart

_MAX_MISSES = 20
"""Maximum number of services per tick whose miss is recorded with its stages; metrics count all misses."""
_STANDING_EVERY_S = 60.0
"""Interval between two records of the objective's standing."""


class Observer:
    """Observes the changes of each tick. Used on the loop's thread."""

    def __init__(self, inbox: RecordInbox, metrics: ReconcilerMetrics) -> None:
        """Initializes the observer.

        Args:
            inbox: Receives the records.
            metrics: Measures the same pods, and exports the objective.
        """
        self._inbox = inbox
        self._metrics = metrics
        self._reclaims = Reclaims()
        self._counter = ObjectiveCounter()
        self._recorded_s = 0.0
        """Time of the last record of the objective."""
        self._recorded_counts = (0, 0)
        """Numbers of services that had met and that had missed the objective at that time."""

    def observe(
        self,
        pods: Mapping[str, ObjectChange[Pod]],
        jobs: Mapping[str, ObjectChange[Job]],
        objectives: Objectives,
        now_s: float,
        *,
        leads: bool,
    ) -> None:
        """Processes the changes of a tick. All replicas do so, but only the leader records."""
        starts, losses = self._metrics.observe_pods(pods, now_s)
        reclaiming = self._metrics.service_starts.reclaiming
        nominated = [
            change.new
            for change in pods.values()
            if change.new is not None and change.new.is_training and change.new.nominated
        ]
        records = self._reclaims.observe(reclaiming, starts, losses, now_s, nominated)
        if leads:
            for namespace, record in records:
                self._inbox.put(namespace, record)
            for change in jobs.values():
                self._record_end(change, now_s)
        if objectives.reclaim is None:
            self._metrics.set_objective(None)
        else:
            self._observe_objective(objectives.reclaim, starts, now_s, leads=leads)

    def note_released(
        self, evicted: Iterable[Release], cluster: ClusterState, now_s: float
    ) -> None:
        """Records evictions by EDL: trainers evicted for services belong to the current burst."""
        for release in evicted:
            if release.reason is Reason.SERVICES_FIRST:
                pod = cluster.pods.get(release.uid)
                lost_s = pod.uncommitted_s if pod is not None else 0.0
                self._reclaims.note_released(release.job, lost_s, now_s)

    def _record_end(self, change: ObjectChange[Job], now_s: float) -> None:
        last, new = change.last, change.new
        if new is None:
            if last is not None:
                text = "deleted after its end" if last.finished else "deleted before its end"
                self._put_end(last, Observation.JOB_DELETED, text, now_s)
        elif last is not None and new.finished and not last.finished:
            end = next(
                condition
                for condition in new.status.conditions
                if condition.type in ("Complete", "Failed") and condition.status == "True"
            )
            is_complete = end.type == "Complete"
            code = Observation.JOB_COMPLETE if is_complete else Observation.JOB_FAILED
            self._put_end(new, code, end.message or end.reason, now_s)

    def _put_end(self, job: Job, code: Observation, text: str, now_s: float) -> None:
        figures = {"seconds": round(now_s - job.created_s, 1)}
        record = Record(now_s, f"job {job.key}", code, text, figures, job.key, now_s)
        self._inbox.put(job.namespace, record)

    def _observe_objective(
        self, objective: ReclaimObjective, starts: list[ServiceStart], now_s: float, *, leads: bool
    ) -> None:
        restored, self._inbox.restored = self._inbox.restored, None
        if restored is not None:
            self._counter.restore(restored)
        missed = self._counter.count(objective, starts, now_s)
        standing = self._counter.standing(objective, now_s)
        self._metrics.set_objective(standing)
        if not leads:
            return
        counted = sum(str(start.cause) in objective.causes for start in starts)
        self._metrics.count_objective(counted - len(missed), len(missed))
        for start in missed[:_MAX_MISSES]:
            self._record_miss(objective, start, now_s)
        counts = standing.kept_count, standing.missed_count
        if counts != self._recorded_counts and now_s - self._recorded_s >= _STANDING_EVERY_S:
            self._recorded_s, self._recorded_counts = now_s, counts
            record = standing.record(now_s, self._counter.buckets(objective, now_s))
            self._inbox.put(CLUSTER, record, is_current=True)

    def _record_miss(self, objective: ReclaimObjective, start: ServiceStart, now_s: float) -> None:
        pod = start.wait.pod
        stages = {stage: round(seconds, 2) for stage, seconds in start.stages.items()}
        figures = {
            "seconds": round(start.seconds, 2),
            "limit": objective.seconds,
            "cause": str(start.cause),
            "stages": stages,
        }
        slowest = max(stages, key=lambda stage: stages[stage])
        text = (
            f"started after {start.seconds:.1f} s, objective {objective.seconds:g} s; "
            f"slowest stage: {slowest}, {stages[slowest]:.1f} s"
        )
        code = Observation.OBJECTIVE_MISSED
        record = Record(now_s, f"pod {pod.key}", code, text, figures, since_s=now_s)
        self._inbox.put(pod.namespace, record)
        if pod.namespace != CLUSTER:
            self._inbox.put(CLUSTER, record)
