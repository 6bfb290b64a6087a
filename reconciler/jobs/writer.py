"""Writes trainer accounting, status and parallelism of Jobs, and reads its own writes.

A watch event about a Job can be older than this process's last write to it. The responses to writes are
kept, so that an older version of a Job never replaces a newer one in the state.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from kube import decode, errors, request
from kube.api import Api
from kube.object_change import ObjectChange
from kube.reading import call
from policy.cluster import trainer_accounting
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, JobStatus, TrainerAccounting
from policy.names import ANNOTATION_BOOKS
from reconciler.jobs import status
from reconciler.quarantine import attempt
from runtime.logs import keys

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """The status and trainer accounting to write to a Job."""

    job: Job
    status: JobStatus
    accounting_text: str


class JobWriter:
    """Writes to Jobs and keeps the newest version of each. Used only on the loop's thread."""

    def __init__(self, api: Api, cluster: ClusterState) -> None:
        self._api = api
        self._cluster = cluster
        self._newest: dict[str, Job] = {}

    def restore_newest(self, changes: Mapping[str, ObjectChange[Job]]) -> None:
        """Restores the newest known version of each Job that a queued change replaced with an older one."""
        for uid, change in changes.items():
            newest = self._newest.get(uid)
            if newest is None:
                continue
            if change.new is None:
                del self._newest[uid]
            elif _version(change.new) < _version(newest):
                self._cluster.put_job(newest)

    def write_accounting(
        self, updates: Sequence[tuple[Job, TrainerAccounting]], pool: Executor
    ) -> list[errors.KubeError | None]:
        """Replaces the accounting of each job, if it has not changed since it was read.

        Returns:
            For each job the error, or None if the accounting was written.
        """

        def write(update: tuple[Job, TrainerAccounting]) -> Job | errors.KubeError:
            job, accounting = update
            return self._try(job, partial(_accounting_patch, job, accounting))

        answers = pool.map(write, updates)
        failures: list[errors.KubeError | None] = []
        for answer in answers:
            self._store(answer)
            failures.append(answer if isinstance(answer, errors.KubeError) else None)
        return failures

    def write_updates(self, updates: Sequence[JobUpdate], pool: Executor) -> list[bool]:
        """Replaces status and accounting of each job in one write, if the job has not changed."""
        answers = pool.map(
            lambda update: self._try(update.job, partial(_update_patch, update)), updates
        )
        return [self._store(answer) for answer in answers]

    def write_parallelism(self, job: Job, count: int) -> bool:
        """Sets how many pods the built-in controller keeps for a job."""
        body = {"spec": {"parallelism": count}, "metadata": {"uid": job.uid}}
        patch = partial(request.merge_patch, request.JOBS, job.namespace, job.name, body)
        return self._store(self._try(job, patch))

    def _try(self, job: Job, build: Callable[[], request.Request]) -> Job | errors.KubeError:
        """Returns the written Job, or the error; after a lost race, the next plan sees the change.

        Runs on any thread. Any other error caused by this job's data is returned as a failed request.
        """
        answer = attempt(lambda: decode.job(call(self._api, build())))
        if answer is None:
            answer = errors.Conflict("the Job is no longer elastic")
        if isinstance(answer, errors.KubeError):
            if is_lost_race(answer):
                log.debug("could not write job now", extra=keys(job=job.key, error=str(answer)))
            else:
                log.warning("could not write job", extra=keys(job=job.key, error=str(answer)))
        return answer

    def _store(self, answer: Job | errors.KubeError) -> bool:
        """Stores the written version of a job in the state; returns False if the write failed."""
        if isinstance(answer, errors.KubeError):
            return False
        self._newest[answer.uid] = answer
        self._cluster.put_job(answer)
        return True


def is_lost_race(error: errors.KubeError) -> bool:
    """Returns whether a write failed because the Job had changed or was deleted, so that a retry suffices.

    A failed `test` of a JSON Patch is reported as Invalid (422), but names no object (apiserver `patch.go`).
    """
    if isinstance(error, errors.Invalid):
        return " is invalid: " not in error.message
    return isinstance(error, errors.Conflict | errors.NotFound)


def _update_patch(update: JobUpdate) -> request.Request:
    """Returns a merge patch of the status subresource, which may also change annotations (seen on 1.36)."""
    job = update.job
    metadata: dict[str, object] = {"resourceVersion": job.resource_version}
    if update.accounting_text != job.accounting_text:
        metadata["annotations"] = {ANNOTATION_BOOKS: update.accounting_text}
    body = {"metadata": metadata, **status.patch(update.status)}
    return request.merge_patch(request.JOBS, job.namespace, job.name, body, subresource="status")


def _accounting_patch(job: Job, new: TrainerAccounting) -> request.Request:
    """Returns a JSON Patch that replaces the annotation if it is still the one in `job`."""
    path = "/metadata/annotations/" + ANNOTATION_BOOKS.replace("/", "~1")
    test: dict[str, object] = (
        {"op": "test", "path": path, "value": job.accounting_text}
        if job.accounting_text
        else {"op": "test", "path": "/metadata/resourceVersion", "value": job.resource_version}
    )
    ops: list[dict[str, object]] = [
        test,
        {"op": "add", "path": path, "value": trainer_accounting.serialize(new)},
    ]
    return request.json_patch(request.JOBS, job.namespace, job.name, ops)


def _version(job: Job) -> int:
    """Returns the resource version as a number; versions of one kind only grow (guaranteed since 1.35)."""
    return int(job.resource_version) if job.resource_version.isdecimal() else 0
