"""Creates priority classes, and one PodDisruptionBudget for each job."""

import logging
from collections.abc import Iterable
from typing import Any

import orjson

from kube import decode, errors, request
from kube.api import Api
from policy.priority_classes import EDL_CLASSES
from policy.snapshot import Job
from reconciler.events import Event
from reconciler.manifests import owned
from reconciler.manifests import trainer as trainer_manifests
from runtime.logs import keys

log = logging.getLogger(__name__)

_CHECK_EVERY_S = 60.0
_RETRY_S = 5.0
"""After a failure, because no trainer can be created without its priority class."""


class SystemObjects:
    """Creates cluster objects and checks them every minute. Used on the loop's thread alone."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._classes_due_s = 0.0
        self._budgets: dict[str, int] = {}
        """Job uid -> the minimum in its budget when that was last checked."""
        self._due_s: dict[str, float] = {}

    def ensure(self, jobs: Iterable[Job], now_s: float) -> list[Event]:
        """Creates missing objects and updates budgets that differ; returns events about failures."""
        if now_s >= self._classes_due_s:
            present = [self._ensure_class(name) for name in EDL_CLASSES]
            self._classes_due_s = now_s + (_CHECK_EVERY_S if all(present) else _RETRY_S)
        events: list[Event] = []
        for job in jobs:
            changed = self._budgets.get(job.uid, job.min_trainers) != job.min_trainers
            needs_budget = job.managed and not (job.error or job.over or job.deleting)
            if needs_budget and (changed or now_s >= self._due_s.get(job.uid, 0.0)):
                events += self._check_budget(job, now_s)
        return events

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""
        self._budgets.pop(job.uid, None)
        self._due_s.pop(job.uid, None)

    def _ensure_class(self, name: str) -> bool:
        """Creates a priority class; returns whether it exists now, as far as is known."""
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
            log.warning("priority class not created", extra=keys(name=name, error=str(error)))
            return False
        return True

    def _check_class(self, name: str) -> None:
        """Warns about a priority class with other values: they cannot be changed."""
        try:
            answer = self._api.send(request.get(request.PRIORITYCLASSES, None, name))
        except errors.KubeError as error:
            log.warning("priority class not read", extra=keys(name=name, error=str(error)))
            return
        actual = decode.priority_class(orjson.loads(answer)).values
        expected = EDL_CLASSES[name]
        if (actual.value, actual.preemption_policy) != (expected.value, expected.preemption_policy):
            log.warning(
                "priority class differs; delete it, and it is created again",
                extra=keys(name=name, value=actual.value, wanted=expected.value),
            )

    def _check_budget(self, job: Job, now_s: float) -> list[Event]:
        problem = self._ensure_budget(job)
        if not problem:
            self._budgets[job.uid] = job.min_trainers
            self._due_s[job.uid] = now_s + _CHECK_EVERY_S
            return []
        self._budgets.pop(job.uid, None)
        self._due_s[job.uid] = now_s + _RETRY_S
        log.warning("PodDisruptionBudget not provided", extra=keys(job=job.key, error=problem))
        return [Event(job, "BudgetNotProvided", problem, warning=True)]

    def _ensure_budget(self, job: Job) -> str:
        """Creates or updates the budget of a job; returns why that failed, or ""."""
        body = trainer_manifests.disruption_budget(job)
        try:
            self._api.send(request.create(request.PODDISRUPTIONBUDGETS, job.namespace, body))
        except errors.AlreadyExists:
            return self._update_budget(job, body["metadata"]["name"])
        except errors.KubeError as error:
            return str(error)
        return ""

    def _update_budget(self, job: Job, name: str) -> str:
        """Updates the budget of this name, if it is the job's: others may have the same name."""
        kind = request.PODDISRUPTIONBUDGETS
        try:
            budget = orjson.loads(self._api.send(request.get(kind, job.namespace, name)))
            if not owned.is_own(job, budget):
                return (
                    f"PodDisruptionBudget {name} exists and is not this Job's: without one, drains do "
                    "not spare its guaranteed trainers; rename it, or the Job (that of an earlier Job "
                    "of this name is deleted by itself)"
                )
            if budget["spec"].get("minAvailable") != job.min_trainers:
                patch = {"spec": {"minAvailable": job.min_trainers}}
                self._api.send(request.merge_patch(kind, job.namespace, name, patch))
        except errors.KubeError as error:
            return str(error)
        return ""
