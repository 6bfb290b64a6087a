"""Objects EDL itself needs in the cluster: priority classes, and one budget a job."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import orjson

from kube import decode, errors, request
from kube.client import Api
from policy.mutation import EDL_CLASSES
from policy.snapshot import Job
from reconciler import pods
from runtime.logs import keys

log = logging.getLogger(__name__)

_TIMEOUT_S = 10.0
_AGAIN_S = 60.0
_SOON_S = 5.0
"""After a failure: without its class no trainer can be made."""


class Provision:
    """Owned by the loop's thread; everything it makes is checked again every minute."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._classes_due_s = 0.0
        self._budgets: dict[str, int] = {}
        """Job uid -> the minimum its budget was last seen to keep."""
        self._due_s: dict[str, float] = {}

    def ensure(self, jobs: Iterable[Job], now_s: float) -> None:
        """Creates what is missing and mends what differs."""
        if now_s >= self._classes_due_s:
            made = [self._ensure_class(name) for name in EDL_CLASSES]
            self._classes_due_s = now_s + (_AGAIN_S if all(made) else _SOON_S)
        for job in jobs:
            changed = self._budgets.get(job.uid, job.min_trainers) != job.min_trainers
            wanted = job.managed and not (job.error or job.over or job.deleting)
            if wanted and (changed or now_s >= self._due_s.get(job.uid, 0.0)):
                self._check_budget(job, now_s)

    def forget(self, uid: str) -> None:
        """Drops what is remembered of a job that is gone."""
        self._budgets.pop(uid, None)
        self._due_s.pop(uid, None)

    def _ensure_class(self, name: str) -> bool:
        """Whether it is there now, as far as we know."""
        wanted = EDL_CLASSES[name]
        body: dict[str, Any] = {
            "metadata": {"name": name},
            "value": wanted.value,
            "preemptionPolicy": wanted.preemption_policy,
            "globalDefault": False,
            "description": "Training pods of EDL; see its documentation on priority tiers.",
        }
        try:
            self._send(request.create(request.PRIORITYCLASSES, None, body))
        except errors.AlreadyExists:
            self._check_class(name)
        except errors.KubeError as error:
            log.warning("priority class not made", extra=keys(name=name, error=str(error)))
            return False
        return True

    def _check_class(self, name: str) -> None:
        """A class that exists cannot be changed, only reported."""
        try:
            answer = self._send(request.get(request.PRIORITYCLASSES, None, name))
        except errors.KubeError as error:
            log.warning("priority class not read", extra=keys(name=name, error=str(error)))
            return
        found = decode.priority_class(orjson.loads(answer))
        wanted = EDL_CLASSES[name]
        if (found.value, found.preemption_policy) != (wanted.value, wanted.preemption_policy):
            log.warning(
                "priority class differs; delete it and it is made anew",
                extra=keys(name=name, value=found.value, wanted=wanted.value),
            )

    def _check_budget(self, job: Job, now_s: float) -> None:
        if self._ensure_budget(job):
            self._budgets[job.uid] = job.min_trainers
            self._due_s[job.uid] = now_s + _AGAIN_S
        else:
            self._budgets.pop(job.uid, None)
            self._due_s[job.uid] = now_s + _SOON_S

    def _ensure_budget(self, job: Job) -> bool:
        """Makes or mends it; whether that worked."""
        body = pods.budget(job)
        name = body["metadata"]["name"]
        try:
            self._send(request.create(request.PODDISRUPTIONBUDGETS, job.namespace, body))
        except errors.AlreadyExists:
            return self._mend_budget(job, name)
        except errors.KubeError as error:
            log.warning("budget not made", extra=keys(job=job.key, error=str(error)))
            return False
        return True

    def _mend_budget(self, job: Job, name: str) -> bool:
        body = {"spec": {"minAvailable": job.min_trainers}}
        asked = request.merge_patch(request.PODDISRUPTIONBUDGETS, job.namespace, name, body)
        try:
            self._send(asked)
        except errors.KubeError as error:
            log.warning("budget not mended", extra=keys(job=job.key, error=str(error)))
            return False
        return True

    def _send(self, asked: request.Request) -> bytes:
        return self._api.send(replace(asked, timeout_s=_TIMEOUT_S))
