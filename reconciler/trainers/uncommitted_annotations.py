"""Annotates trainer pods with the seconds of training that would be lost with them.

Masters report these values. They are written as annotations because two processes choose victims by them:
the extender for kube-scheduler, and the plan of this process. Writes are coarse and rare, because each one
wakes every watcher of pods (docs/decisions/0009). Only if a job's leading trainer changes, the previous and the
new leader are annotated at once, because evicting the leader is the most expensive choice in its tier
(docs/decisions/0013).
"""

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace

from kube import errors, request
from kube.api import Api
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, Pod
from policy.names import ANNOTATION_UNCOMMITTED
from reconciler.masters.reports import MasterReport
from runtime.logs import keys

log = logging.getLogger(__name__)

EVERY_S = 5.0
STEP_S = 5.0
"""Granularity in seconds of training; smaller differences never matter for the choice of victims."""
MAX_WRITES = 100
"""Maximum number of writes started at once; those with the largest difference come first."""
_TIMEOUT_S = 5.0


class UncommittedAnnotator:
    """Writes the annotation `edl.training/uncommitted-seconds` on trainer pods.

    Used on the loop's thread; writes run in the pool, and the loop does not wait for them.
    """

    def __init__(self, api: Api) -> None:
        """Initializes the uncommitted annotator.

        Args:
            api: Sends the writes.
        """
        self._api = api
        self._due_s = 0.0
        self._writes: list[Future[None]] = []
        self._leaders: dict[str, int | None] = {}
        """Job uid -> id of the leading trainer at the last write."""

    def write(
        self,
        jobs: Iterable[Job],
        cluster: ClusterState,
        reports: Mapping[str, MasterReport],
        now_s: float,
        pool: Executor,
    ) -> None:
        """Starts writes of values that have changed enough, unless earlier writes are still in flight."""
        leaders = {uid: report.leader for uid, report in reports.items()}
        due = now_s >= self._due_s
        if not (due or leaders != self._leaders) or not all(write.done() for write in self._writes):
            return
        if due:
            self._due_s = now_s + EVERY_S
        # Between regular writes, only the annotations of a job's former and new leader are written.
        changes = [
            (pod, steps)
            for job in jobs
            if (report := reports.get(job.uid)) is not None
            for pod in cluster.trainers(job)
            if due or pod.trainer_id in self._leaders_changed(job, report)
            if (steps := _steps(pod, report)) is not None
        ]
        self._leaders = leaders
        changes.sort(key=lambda change: -abs(change[1] - change[0].uncommitted_s))
        self._writes = [pool.submit(self._write, pod, steps) for pod, steps in changes[:MAX_WRITES]]

    def _leaders_changed(self, job: Job, report: MasterReport) -> tuple[int | None, ...]:
        """Returns the ids of the previous and the new leader of a job, if they differ."""
        before = self._leaders.get(job.uid)
        return () if before == report.leader else (before, report.leader)

    def _write(self, pod: Pod, seconds: int) -> None:
        annotations = {ANNOTATION_UNCOMMITTED: str(seconds)}
        body = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        patch = request.merge_patch(request.PODS, pod.namespace, pod.name, body)
        try:
            self._api.send(replace(patch, timeout_s=_TIMEOUT_S))
        except errors.KubeError as error:
            log.debug(
                "could not write uncommitted seconds", extra=keys(pod=pod.key, error=str(error))
            )


def _steps(pod: Pod, report: MasterReport) -> int | None:
    """Returns the new annotation in whole steps, or None if the present one is close enough."""
    seconds = report.uncommitted.get(pod.trainer_id, 0.0)
    if abs(seconds - pod.uncommitted_s) < STEP_S:
        return None
    return int(seconds / STEP_S) * int(STEP_S)
