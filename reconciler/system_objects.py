"""Creates the priority classes, and a PodDisruptionBudget for each job."""

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

from kube import decode, errors, request
from kube.api import Api
from kube.reading import call
from policy.cluster.snapshot import Job
from policy.priority_classes import EDL_CLASSES
from reconciler.manifests import owned
from reconciler.manifests import trainer as trainer_manifests
from reconciler.quarantine import attempt
from reconciler.records.events import Event
from runtime.logs import keys

log = logging.getLogger(__name__)

_CHECK_EVERY_S = 60.0
_RETRY_S = 5.0
"""Pause after a failure; short, because no trainer can be created without its priority class."""
_BATCH = 100
"""Maximum number of budgets in a batch. A batch occupies only one thread of the pool."""
_NOTHING: Mapping[str, int] = {}


def _covered(job: Job, uncovered: int) -> Job:
    """Returns the job with its minimum reduced to the trainers that are guaranteed."""
    return replace(job, min_trainers=job.min_trainers - uncovered) if uncovered else job


class SystemObjects:
    """Creates cluster objects and checks them every minute. Used only on the loop's thread.

    Budgets are checked in the pool, one batch at a time, and so are the priority classes once they exist.
    The plan does not wait for these checks, however many jobs there are and however slow the API server is.
    """

    def __init__(self, api: Api, pool: Executor) -> None:
        """Initializes the system objects.

        Args:
            api: Sends the requests.
            pool: Runs the batches.
        """
        self._api = api
        self._pool = pool
        self._batch: Future[list[tuple[Job, str]]] | None = None
        """The batch in flight. Its result pairs each job with an error message about its budget, or with ""."""
        self._checking: set[str] = set()
        """uids of the jobs in that batch."""
        self._classes: Future[bool] | None = None
        """The running check of the priority classes; its result says whether all of them exist."""
        self._classes_exist = False
        self._classes_due_s = 0.0
        self._budgets: dict[str, int] = {}
        """Job uid -> the minimum in its budget at the last check."""
        self._due_s: dict[str, float] = {}

    def ensure(
        self, jobs: Iterable[Job], now_s: float, uncovered: Mapping[str, int] = _NOTHING
    ) -> list[Event]:
        """Creates missing objects and updates outdated budgets.

        Args:
            jobs: All jobs.
            now_s: Seconds since the epoch.
            uncovered: Job key -> how many trainers of the job's minimum are surplus. The job's budget
                does not cover them, because it would then block every drain of the job's nodes.

        Returns:
            Events about failures in the batches that have completed.
        """
        if uncovered:
            jobs = [_covered(job, uncovered.get(job.key, 0)) for job in jobs]
        self._check_classes(now_s)
        events = self._collect(now_s)
        if self._batch is None:
            self._check_budgets([job for job in jobs if self._is_due(job, now_s)])
            events += self._collect(now_s)
        return events

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""
        self._budgets.pop(job.uid, None)
        self._due_s.pop(job.uid, None)
        self._checking.discard(job.uid)

    def _is_due(self, job: Job, now_s: float) -> bool:
        changed = self._budgets.get(job.uid, job.min_trainers) != job.min_trainers
        needs_budget = job.managed and not (job.error or job.over or job.deleting)
        return needs_budget and (changed or now_s >= self._due_s.get(job.uid, 0.0))

    def _check_classes(self, now_s: float) -> None:
        """Checks the priority classes; waits for the result until all of them have existed once.

        Before they exist, no trainer could be created anyway. Later checks run in the pool.
        """
        if self._classes is None and now_s >= self._classes_due_s:
            if self._classes_exist:
                self._classes = self._pool.submit(self._ensure_classes)
            else:
                self._classes_checked(now_s, present=self._ensure_classes())
        elif self._classes is not None and self._classes.done():
            present, self._classes = self._classes.result(), None
            self._classes_checked(now_s, present=present)

    def _classes_checked(self, now_s: float, *, present: bool) -> None:
        self._classes_exist |= present
        self._classes_due_s = now_s + (_CHECK_EVERY_S if present else _RETRY_S)

    def _ensure_classes(self) -> bool:
        """Creates missing priority classes; returns whether all exist now. Runs on any thread."""
        missing = [name for name in EDL_CLASSES if not self._ensure_class(name)]
        return not missing

    def _ensure_class(self, name: str) -> bool:
        """Creates a priority class; returns False if the request failed, so that its existence is unknown."""
        edl_class = EDL_CLASSES[name]
        body: dict[str, Any] = {
            "metadata": {"name": name},
            "value": edl_class.value,
            "preemptionPolicy": edl_class.preemption_policy,
            "globalDefault": False,
            "description": "Training pods of EDL; see its documentation on priority tiers.",
        }
        try:
            self._api.send(request.create(request.PRIORITYCLASSES, None, body))
        except errors.AlreadyExists:
            self._check_class(name)
        except errors.KubeError as error:
            log.warning("could not create priority class", extra=keys(name=name, error=str(error)))
            return False
        return True

    def _check_class(self, name: str) -> None:
        """Logs a warning if an existing priority class has other values, because they cannot be changed."""
        try:
            stored = call(self._api, request.get(request.PRIORITYCLASSES, None, name))
        except errors.KubeError as error:
            log.warning("could not read priority class", extra=keys(name=name, error=str(error)))
            return
        actual = decode.priority_class(stored).values
        expected = EDL_CLASSES[name]
        if (actual.value, actual.preemption_policy) != (expected.value, expected.preemption_policy):
            log.warning(
                "priority class differs: delete it, and EDL creates it again",
                extra=keys(name=name, value=actual.value, wanted=expected.value),
            )

    def _check_budgets(self, due: list[Job]) -> None:
        """Starts a batch with the jobs that are most overdue, new ones first."""
        batch = sorted(due, key=lambda job: self._due_s.get(job.uid, 0.0))[:_BATCH]
        if batch:
            self._checking = {job.uid for job in batch}
            known = self._checking & self._budgets.keys()
            self._batch = self._pool.submit(self._ensure_budgets, batch, known)

    def _ensure_budgets(self, batch: Sequence[Job], known: Container[str]) -> list[tuple[Job, str]]:
        """Returns each job with an error message about its budget, or with "". Runs on any thread."""
        return [(job, self._try_budget(job, known=job.uid in known)) for job in batch]

    def _try_budget(self, job: Job, *, known: bool) -> str:
        problem = attempt(lambda: self._ensure_budget(job, known=known))
        return str(problem) if isinstance(problem, errors.KubeError) else problem

    def _collect(self, now_s: float) -> list[Event]:
        """Reads the results of the batch if it has completed; returns events about failures."""
        if self._batch is None or not self._batch.done():
            return []
        batch, self._batch = self._batch, None
        checked = [(job, problem) for job, problem in batch.result() if job.uid in self._checking]
        for job, problem in checked:
            if not problem:
                self._budgets[job.uid] = job.min_trainers
                self._due_s[job.uid] = now_s + _CHECK_EVERY_S
                continue
            self._budgets.pop(job.uid, None)
            self._due_s[job.uid] = now_s + _RETRY_S
            log.warning(
                "could not create or update PodDisruptionBudget",
                extra=keys(job=job.key, error=problem),
            )
        return [
            Event(job, "BudgetNotProvided", problem, warning=True)
            for job, problem in checked
            if problem
        ]

    def _ensure_budget(self, job: Job, *, known: bool) -> str:
        """Creates or updates the budget of a job; returns an error message, or "".

        A budget that is `known` to exist is only read, which takes one request instead of two.
        """
        body = trainer_manifests.disruption_budget(job)
        problem: str | None = None
        if known:
            problem = self._update_budget(job, body["metadata"]["name"])
            if problem is not None:
                return problem
        try:
            self._api.send(request.create(request.PODDISRUPTIONBUDGETS, job.namespace, body))
        except errors.AlreadyExists:
            problem = self._update_budget(job, body["metadata"]["name"])
            return (
                "another client keeps deleting the PodDisruptionBudget"
                if problem is None
                else problem
            )
        except errors.KubeError as error:
            return str(error)
        return ""

    def _update_budget(self, job: Job, name: str) -> str | None:
        """Updates the budget of this name, if it belongs to the job and not to another owner.

        Returns:
            An error message, "" after a success, or None if the budget does not exist.
        """
        kind = request.PODDISRUPTIONBUDGETS
        try:
            budget = call(self._api, request.get(kind, job.namespace, name))
            if not owned.is_own(job, budget):
                return (
                    f"PodDisruptionBudget {name} does not belong to this Job, so drains do not spare the "
                    "Job's guaranteed trainers: rename the budget or the Job (if it belongs to a deleted Job of this name, Kubernetes deletes it soon)"
                )
            if budget["spec"].get("minAvailable") != job.min_trainers:
                patch = {"spec": {"minAvailable": job.min_trainers}}
                self._api.send(request.merge_patch(kind, job.namespace, name, patch))
        except errors.NotFound:
            return None
        except errors.KubeError as error:
            return str(error)
        return ""
