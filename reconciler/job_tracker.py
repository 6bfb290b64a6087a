"""Tracks the trainers of each job and keeps the Job's accounting and status up to date.

Observations are kept until the API server has them: an ending that is not written yet is counted
again in the next tick, from the accounting as written, so none is lost or counted twice.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import replace

from kube.state_feed import ObjectChange
from policy import trainer_accounting
from policy.cluster_state import ClusterState
from policy.live_trainers import LiveTrainers
from policy.plan import JobPlan, Plan
from policy.snapshot import Job, Pod, TrainerAccounting
from reconciler import accounting, status
from reconciler.expectations import Expectations
from reconciler.job_writer import JobUpdate, JobWriter
from reconciler.master_reports import MasterReport

WRITE_EVERY_S = 1.0
"""Minimum interval between writes to one job; its start and end are written at once."""


class JobTracker:
    """Keeps accounting and status of all managed Jobs. Used on the loop's thread alone."""

    def __init__(
        self,
        cluster: ClusterState,
        expectations: Expectations,
        writer: JobWriter,
        pending_ids: Callable[[Job], frozenset[int]],
        master_report: Callable[[Job], MasterReport | None],
    ) -> None:
        self._cluster = cluster
        self._expectations = expectations
        self._writer = writer
        self._pending_ids = pending_ids
        self._master_report = master_report
        self._deleted_pods: dict[str, dict[str, Pod]] = {}
        """Job uid -> pod uid -> last version of a deleted pod that the written accounting lacks."""
        self._due_s: dict[str, float] = {}
        self._clean: dict[str, tuple[Job, LiveTrainers]] = {}
        """Job uid -> the Job and its trainers when nothing was left to write."""

    def observe_pods(self, changes: Mapping[str, ObjectChange[Pod]]) -> None:
        """Keeps the last version of each deleted trainer pod."""
        for uid, change in changes.items():
            last = change.last
            if change.new is None and last is not None and last.trainer_id >= 0:
                self._deleted_pods.setdefault(last.owner_uid, {})[uid] = last

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""
        self._deleted_pods.pop(job.uid, None)
        self._due_s.pop(job.uid, None)
        self._clean.pop(job.uid, None)

    def forget_counted(self) -> None:
        """Drops deleted pods that another process has counted; for a process that does not lead."""
        self._forget_orphans()
        for job in tuple(self._cluster.jobs.values()):
            if job.uid in self._deleted_pods:
                self._forget_closed(job, trainer_accounting.parse(job.accounting_text))

    def update_accounting(self) -> None:
        """Updates the accounting in the cluster state; `write` sends it to the API server."""
        self._forget_orphans()
        for job in tuple(self._cluster.jobs.values()):
            if job.managed and not job.error and not self._is_clean(job):
                settled = self._settled(job)
                if settled.accounting != job.accounting:
                    self._cluster.put_job(settled)

    def _forget_orphans(self) -> None:
        """Drops deleted pods of Jobs that no longer exist."""
        jobs = {job.uid for job in self._cluster.jobs.values()}
        for uid in [uid for uid in self._deleted_pods if uid not in jobs]:
            del self._deleted_pods[uid]

    def write(self, now_s: float, pool: Executor, plan: Plan) -> bool:
        """Writes every difference that is due; returns whether nothing is left to write."""
        job_plans = {job_plan.key: job_plan for job_plan in plan.jobs}
        due: list[JobUpdate] = []
        clean = True
        for job in tuple(self._cluster.jobs.values()):
            if not job.managed or job.deleting:
                continue
            planned = job_plans.get(job.key)
            over = job.master and not job.over and self._is_final(job)
            if self._is_clean(job) and not over and status.waiting(job, planned, now_s) is None:
                continue
            update = self._update(job, now_s, planned)
            if update is None:
                self._forget_counted(job)
                self._clean[job.uid] = (job, self._cluster.live_trainers(job))
            elif self._is_due(update, now_s):
                self._due_s[job.uid] = now_s + WRITE_EVERY_S
                due.append(update)
            else:
                clean = False
        for update, written in zip(due, self._writer.write_updates(due, pool), strict=True):
            if written:
                self._forget_counted(update.job)
            clean &= written
        return clean

    def _is_clean(self, job: Job) -> bool:
        """Whether nothing has changed since all was written; a deadline passes without a change.

        The cluster state builds new `LiveTrainers` whenever a trainer of the job changes.
        """
        clean_job, trainers = self._clean.get(job.uid, (None, None))
        unchanged = clean_job is job and trainers is self._cluster.live_trainers(job)
        return unchanged and not job.deadline_s

    def _is_final(self, job: Job) -> bool:
        report = self._master_report(job)
        return report is not None and report.final

    def _update(self, job: Job, now_s: float, plan: JobPlan | None) -> JobUpdate | None:
        """The update to write to a job, or None where the API server has it already."""
        new_status = status.status(
            job,
            self._pods(job),
            job.accounting,
            now_s,
            plan,
            master_report=self._master_report(job),
        )
        text = accounting_text(job)
        if new_status == job.status and text == job.accounting_text:
            return None
        return JobUpdate(job, new_status, text)

    def _is_due(self, update: JobUpdate, now_s: float) -> bool:
        """Whether to write now: new conditions at once, counts every `WRITE_EVERY_S`."""
        new_condition = len(update.status.conditions) != len(update.job.status.conditions)
        return new_condition or self._due_s.get(update.job.uid, 0.0) <= now_s

    def _forget_counted(self, job: Job) -> None:
        """Drops deleted pods that the accounting, which has just been written, has counted."""
        self._forget_closed(job, self._cluster.jobs[job.key].accounting)

    def _forget_closed(self, job: Job, written: TrainerAccounting) -> None:
        """Drops deleted pods whose ids the accounting on the API server has closed.

        The watch of pods may be ahead of that of Jobs: an id that is not reserved yet is not closed.
        """
        deleted_pods = self._deleted_pods.get(job.uid, {})
        for uid, pod in tuple(deleted_pods.items()):
            if pod.trainer_id < written.next_id and pod.trainer_id not in written.open:
                del deleted_pods[uid]

    def _settled(self, job: Job) -> Job:
        present = self._pods(job)
        present_ids = {pod.trainer_id for pod in present}
        deleted_pods = [
            pod
            for pod in self._deleted_pods.get(job.uid, {}).values()
            if pod.trainer_id not in present_ids
        ]
        settled = accounting.count_endings(
            job.accounting,
            present,
            deleted_pods=deleted_pods,
            released=self._expectations,
            pending_ids=self._pending_ids(job),
            master=job.master,
            rules=job.failure_rules,
            min_trainers=job.min_trainers,
        )
        return job if settled == job.accounting else replace(job, accounting=settled)

    def _pods(self, job: Job) -> list[Pod]:
        members = self._cluster.members.get(job.key, {})
        return [pod for pod in members.values() if pod.owner_uid == job.uid]


def accounting_text(job: Job) -> str:
    """The text of the accounting annotation; empty for a job that never had a trainer.

    The annotation of an invalid job is left as it is until somebody corrects the job.
    """
    if job.accounting.next_id and not job.error:
        return trainer_accounting.serialize(job.accounting)
    return job.accounting_text
