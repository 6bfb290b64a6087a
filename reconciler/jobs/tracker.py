"""Tracks the trainers of each job and keeps the Job's accounting and status up to date.

Observed pods are kept until the API server has stored the result. An ending that is not written yet is
counted again in the next tick, starting from the stored accounting, so none is lost or counted twice.
"""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Protocol

from kube.object_change import ObjectChange
from policy.cluster import trainer_accounting
from policy.cluster.cluster_state import ClusterState
from policy.cluster.live_trainers import LiveTrainers
from policy.cluster.snapshot import Job, Pod, TrainerAccounting
from policy.planning.plan import JobPlan, Plan
from reconciler.expectations import Expectations
from reconciler.jobs import accounting, status
from reconciler.jobs.writer import JobUpdate, JobWriter
from reconciler.masters.reports import MasterReport
from reconciler.quarantine import Quarantine
from reconciler.turns import in_turns

WRITE_EVERY_S = 1.0
"""Minimum interval between writes to one job; its start and end are written at once."""
_WRITES_PER_S = 20
"""Limit of status writes with new counts, per second and per tick. If more jobs change, each is written less
often.

The writes delay the next tick, and thus the creation of its trainers. Unused allowance expires after one second.
"""

_JobId = tuple[str, str]
_CONDITIONS_PER_TICK = 100
"""Maximum number of jobs per tick whose new conditions are written, in addition to the writes of counts."""


class ReservedIds(Protocol):
    """The trainer ids that are reserved in the accounting and have no pod yet."""

    def pending_ids(self, job: Job) -> frozenset[int]:
        """Returns ids whose pods will be created later, so that they do not count as missing."""

    def unused_ids(self, job: Job) -> frozenset[int]:
        """Returns the pending ids for which no pod was ever requested."""

    def forget_given_back(self, job: Job) -> None:
        """Drops ids that the written accounting no longer contains."""


class JobTracker:
    """Keeps accounting and status of all managed Jobs. Used only on the loop's thread."""

    def __init__(
        self,
        cluster: ClusterState,
        expectations: Expectations,
        writer: JobWriter,
        reserved: ReservedIds,
        master_report: Callable[[Job], MasterReport | None],
        *,
        quarantine: Quarantine,
    ) -> None:
        self._cluster = cluster
        self._expectations = expectations
        self._writer = writer
        self._reserved = reserved
        self._quarantine = quarantine
        self._master_report = master_report
        self._deleted_pods: dict[_JobId, dict[str, Pod]] = {}
        """Namespace and uid of a Job -> pod uid -> last version of a deleted pod missing from the accounting.

        The namespace is part of the key because a pod's creator can name any Job as its controller,
        even one in another namespace.
        """
        self._due_s: dict[str, float] = {}
        """Job uid -> earliest time of the next write of its counts."""
        self._allowance = float(_WRITES_PER_S)
        """Writes of counts still allowed at `_allowed_s`."""
        self._allowed_s = 0.0
        self._clean: dict[str, tuple[Job, LiveTrainers]] = {}
        """Job uid -> the Job and its trainers when there was nothing left to write."""

    def observe_pods(self, changes: Mapping[str, ObjectChange[Pod]]) -> None:
        """Keeps the last version of each deleted trainer pod."""
        for uid, change in changes.items():
            last = change.last
            if change.new is None and last is not None and last.trainer_id >= 0:
                owner = (last.namespace, last.owner_uid)
                self._deleted_pods.setdefault(owner, {})[uid] = last

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""
        self._deleted_pods.pop(_id(job), None)
        self._due_s.pop(job.uid, None)
        self._clean.pop(job.uid, None)

    def forget_counted(self) -> None:
        """Drops deleted pods that the leader has counted. Called while this process does not lead."""
        self._forget_orphans()
        for job in tuple(self._cluster.jobs.values()):
            if _id(job) in self._deleted_pods:
                self._forget_closed(job, trainer_accounting.parse(job.accounting_text))

    def update_accounting(self, now_s: float) -> None:
        """Updates the accounting in the cluster state; `write` sends it to the API server."""
        self._forget_orphans()
        for job in tuple(self._cluster.jobs.values()):
            if job.managed and not job.error and not self._is_clean(job):
                with self._quarantine.contain(job):
                    settled = self._settled(job, now_s)
                    if settled.accounting != job.accounting:
                        self._cluster.put_job(settled)

    def _forget_orphans(self) -> None:
        """Drops deleted pods of Jobs that no longer exist."""
        jobs = {_id(job) for job in self._cluster.jobs.values()}
        for owner in self._deleted_pods.keys() - jobs:
            del self._deleted_pods[owner]

    def write(self, now_s: float, pool: Executor, plan: Plan) -> bool:
        """Writes the differences that are due; returns whether nothing is left to write."""
        job_plans = {job_plan.key: job_plan for job_plan in plan.jobs}
        growing = plan.growing
        updates: list[JobUpdate] = []
        for job in tuple(self._cluster.jobs.values()):
            if not job.managed or job.deleting:
                continue
            with self._quarantine.contain(job):
                unused = frozenset() if job.key in growing else self._reserved.unused_ids(job)
                update = self._changed(job, now_s, job_plans.get(job.key), unused)
                updates += [update] if update is not None else ()
        due = self._due(updates, now_s)
        self._due_s |= {update.job.uid: now_s + WRITE_EVERY_S for update in due}
        clean = len(due) == len(updates)
        for update, written in zip(due, self._writer.write_updates(due, pool), strict=True):
            if written:
                self._forget_counted(update.job)
                self._reserved.forget_given_back(self._cluster.jobs[update.job.key])
            clean &= written
        return clean

    def _changed(
        self, job: Job, now_s: float, planned: JobPlan | None, unused: Collection[int]
    ) -> JobUpdate | None:
        """Returns the update to write to a job; if there is none, marks the job as clean and returns None."""
        over = job.edl_master and not job.over and self._is_final(job)
        is_same = self._is_clean(job) and not (over or unused)
        if is_same and status.waiting(job, planned, now_s) is None:
            return None
        update = self._update(job, now_s, planned, unused)
        if update is None:
            self._forget_counted(job)
            self._clean[job.uid] = (job, self._cluster.live_trainers(job))
        return update

    def _is_clean(self, job: Job) -> bool:
        """Returns whether nothing has changed since the last write.

        A job with a deadline is never clean, because the deadline can pass without a change of the job. The
        cluster state builds new `LiveTrainers` whenever a trainer of the job changes.
        """
        clean_job, trainers = self._clean.get(job.uid, (None, None))
        unchanged = clean_job is job and trainers is self._cluster.live_trainers(job)
        return unchanged and not job.deadline_s

    def _is_final(self, job: Job) -> bool:
        report = self._master_report(job)
        return report is not None and report.final

    def _update(
        self, job: Job, now_s: float, plan: JobPlan | None, unused: Collection[int]
    ) -> JobUpdate | None:
        """Returns the update to write to a job, or None if the API server already has it.

        The update gives back reserved ids in `unused`, because the job has stopped growing.
        """
        new_status = status.status(
            job,
            self._pods(job),
            job.accounting,
            now_s,
            plan,
            master_report=self._master_report(job),
        )
        kept = trainer_accounting.give_back(job.accounting, unused)
        text = accounting_text(replace(job, accounting=kept) if unused else job)
        if new_status == job.status and text == job.accounting_text:
            return None
        return JobUpdate(job, new_status, text)

    def _due(self, updates: list[JobUpdate], now_s: float) -> list[JobUpdate]:
        """Returns the updates to write now: new conditions, and counts whose interval has passed.

        Conditions are limited per tick, with namespaces taking turns. Counts are limited by the
        allowance, and those that have waited longest come first.
        """
        passed_s = max(0.0, now_s - self._allowed_s)
        self._allowance = min(_WRITES_PER_S, self._allowance + passed_s * _WRITES_PER_S)
        self._allowed_s = now_s
        urgent = {u.job.uid: u for u in updates if _has_new_condition(u)}
        turns = in_turns(update.job for update in urgent.values())
        counts = [
            (due_s, i, update)
            for i, update in enumerate(updates)
            if not _has_new_condition(update)
            and not now_s < (due_s := self._due_s.setdefault(update.job.uid, now_s))
        ]
        chosen = [update for _, _, update in sorted(counts)[: int(self._allowance)]]
        self._allowance -= len(chosen)
        return [urgent[job.uid] for job in turns[:_CONDITIONS_PER_TICK]] + chosen

    def _forget_counted(self, job: Job) -> None:
        """Drops deleted pods that the accounting just written has counted."""
        self._forget_closed(job, self._cluster.jobs[job.key].accounting)

    def _forget_closed(self, job: Job, written: TrainerAccounting) -> None:
        """Drops deleted pods whose ids are closed in the accounting on the API server.

        The watch of pods may be ahead of the watch of Jobs: an id that is not reserved yet is not closed.
        """
        deleted_pods = self._deleted_pods.get(_id(job), {})
        for uid, pod in tuple(deleted_pods.items()):
            if pod.trainer_id < written.next_id and pod.trainer_id not in written.open:
                del deleted_pods[uid]

    def _settled(self, job: Job, now_s: float) -> Job:
        present = self._pods(job)
        present_ids = {pod.trainer_id for pod in present}
        deleted_pods = [
            pod
            for pod in self._deleted_pods.get(_id(job), {}).values()
            if pod.trainer_id not in present_ids
        ]
        settled = accounting.count_endings(
            job.accounting,
            present,
            deleted_pods=deleted_pods,
            released=self._expectations,
            pending_ids=self._reserved.pending_ids(job),
            master=job.edl_master,
            rules=job.failure_rules,
            min_trainers=job.min_trainers,
            ended_s=partial(self._cluster.first_seen.ended_s, now_s=now_s),
        )
        return job if settled == job.accounting else replace(job, accounting=settled)

    def _pods(self, job: Job) -> list[Pod]:
        members = self._cluster.members.get(job.key, {})
        return [pod for pod in members.values() if pod.owner_uid == job.uid]


def _id(job: Job) -> _JobId:
    return job.namespace, job.uid


def _has_new_condition(update: JobUpdate) -> bool:
    """Returns whether the update has a condition of a new type, or one that resumes the job.

    Changes of the Waiting condition do not count: they can affect many jobs at once and take turns.
    """
    old, new = (
        {(c.type, c.status if c.type != status.WAITING else "") for c in s.conditions}
        for s in (update.job.status, update.status)
    )
    return old != new


def accounting_text(job: Job) -> str:
    """Returns the text of the accounting annotation, or "" for a job that never had a trainer.

    The annotation of an invalid job stays as it is until the job is corrected.
    """
    if job.accounting.next_id and not job.error:
        return trainer_accounting.serialize(job.accounting)
    return job.accounting_text
