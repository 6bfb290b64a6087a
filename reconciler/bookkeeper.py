"""Follows what becomes of trainers and keeps books and status of their jobs true.

What was seen is kept until the API server has it: an ending that is not written yet is
settled again with the next look, so nothing is lost and nothing counted twice.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import replace

from kube.live import Change
from policy.crew import Crew
from policy.index import Index
from policy.planning import JobPlan, Plan
from policy.snapshot import Job, Pod
from reconciler import books, status
from reconciler.expectations import Expectations
from reconciler.jobs import JobWriter, Report
from reconciler.words import Word

WRITE_EVERY_S = 1.0
"""Books and status of one job are written at most this often; its end is written at once."""


class Bookkeeper:
    """Owned by the loop's thread."""

    def __init__(
        self,
        index: Index,
        expectations: Expectations,
        writer: JobWriter,
        coming: Callable[[Job], frozenset[int]],
        word: Callable[[Job], Word | None],
    ) -> None:
        self._index = index
        self._expectations = expectations
        self._writer = writer
        self._coming = coming
        self._word = word
        self._gone: dict[str, dict[str, Pod]] = {}
        """Job uid -> pod uid -> last record of a pod that left and is not in the written books."""
        self._due_s: dict[str, float] = {}
        self._clean: dict[str, tuple[Job, Crew]] = {}
        """Job uid -> the Job and its trainers when all about them was last written."""

    def note(self, changes: Mapping[str, Change[Pod]]) -> None:
        """Remembers how trainers looked when they were last seen."""
        for uid, change in changes.items():
            last = change.last
            if change.new is None and last is not None and last.trainer_id >= 0:
                self._gone.setdefault(last.owner_uid, {})[uid] = last

    def forget(self, uid: str) -> None:
        """Drops what is remembered of a job that is gone."""
        self._gone.pop(uid, None)
        self._due_s.pop(uid, None)
        self._clean.pop(uid, None)

    def settle(self) -> None:
        """Brings the books in the index up to date; the API server gets them with `write`."""
        self._forget_orphans()
        for job in tuple(self._index.jobs.values()):
            if job.managed and not job.error and not self._is_clean(job):
                settled = self._settled(job)
                if settled.books != job.books:
                    self._index.put_job(settled)

    def _forget_orphans(self) -> None:
        """Pods that outlived their Job have no books."""
        jobs = {job.uid for job in self._index.jobs.values()}
        for uid in [uid for uid in self._gone if uid not in jobs]:
            del self._gone[uid]

    def write(self, now_s: float, pool: Executor, made: Plan) -> bool:
        """Writes what differs and is due; whether everything that differs is written."""
        plans = {wanted.key: wanted for wanted in made.jobs}
        due: list[Report] = []
        clean = True
        for job in tuple(self._index.jobs.values()):
            if not job.managed or job.deleting:
                continue
            wanted = plans.get(job.key)
            over = job.master and not job.over and self._is_final(job)
            if self._is_clean(job) and not over and status.waiting(job, wanted, now_s) is None:
                continue
            report = self._report(job, now_s, wanted)
            if report is None:
                self._forget_counted(job)
                self._clean[job.uid] = (job, self._index.crew(job))
            elif self._is_due(report, now_s):
                self._due_s[job.uid] = now_s + WRITE_EVERY_S
                due.append(report)
            else:
                clean = False
        for report, written in zip(due, self._writer.write_reports(due, pool), strict=True):
            if written:
                self._forget_counted(report.job)
            clean &= written
        return clean

    def _is_clean(self, job: Job) -> bool:
        """Whether nothing changed since all was written; a deadline passes without a change.

        The index makes a new crew whenever a trainer of the job changes.
        """
        then = self._clean.get(job.uid, (None, None))
        return then[0] is job and then[1] is self._index.crew(job) and not job.deadline_s

    def _is_final(self, job: Job) -> bool:
        word = self._word(job)
        return word is not None and word.final

    def _report(self, job: Job, now_s: float, plan: JobPlan | None) -> Report | None:
        """What is to be written of a job, or None where the API server has it all."""
        wanted = status.status(job, self._pods(job), job.books, now_s, plan, word=self._word(job))
        text = books_text(job)
        if wanted == job.status and text == job.books_text:
            return None
        return Report(job, wanted, text)

    def _is_due(self, report: Report, now_s: float) -> bool:
        """A job's start and end are written at once, counts once in a while."""
        turns = len(report.status.conditions) != len(report.job.status.conditions)
        return turns or self._due_s.get(report.job.uid, 0.0) <= now_s

    def _forget_counted(self, job: Job) -> None:
        """Endings that are in the books on the API server need no memory any more."""
        current = self._index.jobs[job.key]
        gone = self._gone.get(job.uid, {})
        for uid in [uid for uid, pod in gone.items() if pod.trainer_id not in current.books.open]:
            del gone[uid]

    def _settled(self, job: Job) -> Job:
        present = self._pods(job)
        known = {pod.trainer_id for pod in present}
        gone = [pod for pod in self._gone.get(job.uid, {}).values() if pod.trainer_id not in known]
        settled = books.settle(
            job.books,
            present,
            gone=gone,
            released=self._expectations,
            coming=self._coming(job),
            master=job.master,
        )
        return job if settled == job.books else replace(job, books=settled)

    def _pods(self, job: Job) -> list[Pod]:
        members = self._index.members.get(job.key, {})
        return [pod for pod in members.values() if pod.owner_uid == job.uid]


def books_text(job: Job) -> str:
    """The annotation that the job's books want; nothing for a job that never had a trainer.

    Those of a job that is wrong are left as they are until somebody corrects it.
    """
    return books.text(job.books) if job.books.next_id and not job.error else job.books_text
