"""Writes trainer accounting, status and parallelism of Jobs, and reads its own writes.

A watch event about a Job can be older than the newest write of this process; the answers to writes
are kept, so that an older version of a Job never replaces a newer one.
"""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import orjson

from kube import decode, errors, request
from kube.api import Api
from kube.state_feed import ObjectChange
from policy import trainer_accounting
from policy.cluster_state import ClusterState
from policy.names import ANNOTATION_BOOKS
from policy.snapshot import Job, JobStatus, TrainerAccounting
from reconciler import status
from runtime.logs import keys

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """The status and trainer accounting to write to a Job."""

    job: Job
    status: JobStatus
    accounting_text: str


class JobWriter:
    """Writes to Jobs and keeps the newest version of each. Used on the loop's thread alone."""

    def __init__(self, api: Api, cluster: ClusterState) -> None:
        self._api = api
        self._cluster = cluster
        self._newest: dict[str, Job] = {}

    def restore_newest(self, changes: Mapping[str, ObjectChange[Job]]) -> None:
        """Replaces versions of Jobs that a drain brought in, where a newer one is kept."""
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
        """Replaces the accounting of each job if it still is the one that was read.

        Returns:
            For each job the error, or None where it was written.
        """
        answers = pool.map(lambda pair: self._try(pair[0], _accounting_patch(*pair)), updates)
        failures: list[errors.KubeError | None] = []
        for (job, _), answer in zip(updates, answers, strict=True):
            stored = self._store(job, answer)
            changed = None if stored else errors.Conflict("the Job is no longer elastic")
            failures.append(answer if isinstance(answer, errors.KubeError) else changed)
        return failures

    def write_updates(self, updates: Sequence[JobUpdate], pool: Executor) -> list[bool]:
        """Replaces status and accounting of each job in one write, if the job has not changed."""
        answers = pool.map(lambda update: self._try(update.job, _update_patch(update)), updates)
        return [
            self._store(update.job, answer) for update, answer in zip(updates, answers, strict=True)
        ]

    def write_parallelism(self, job: Job, count: int) -> bool:
        """Sets how many pods the built-in controller keeps for a job."""
        body = {"spec": {"parallelism": count}, "metadata": {"uid": job.uid}}
        patch = request.merge_patch(request.JOBS, job.namespace, job.name, body)
        return self._store(job, self._try(job, patch))

    def _try(self, job: Job, api_request: request.Request) -> bytes | errors.KubeError:
        """The answer, or the error. After a lost race the next plan sees the change. On any thread."""
        try:
            return self._api.send(api_request)
        except errors.KubeError as error:
            if is_lost_race(error):
                log.debug("job changed before the write", extra=keys(job=job.key, error=str(error)))
            else:
                log.warning("job not written", extra=keys(job=job.key, error=str(error)))
            return error

    def _store(self, job: Job, answer: bytes | errors.KubeError) -> bool:
        """Stores the written version of a job in the state; False where the write failed."""
        if isinstance(answer, errors.KubeError):
            return False
        written = decode.job(orjson.loads(answer))
        if written is None:
            return False
        self._newest[job.uid] = written
        self._cluster.put_job(written)
        return True


def is_lost_race(error: errors.KubeError) -> bool:
    """Whether a write failed because the Job had changed or gone, so that the next try is enough.

    The `test` of a JSON Patch fails as Invalid (422), but names no object (apiserver `patch.go`).
    """
    if isinstance(error, errors.Invalid):
        return " is invalid: " not in error.message
    return isinstance(error, errors.Conflict | errors.NotFound)


def _update_patch(update: JobUpdate) -> request.Request:
    """A merge patch of the status subresource, which may also change annotations (seen on 1.36)."""
    job = update.job
    metadata: dict[str, object] = {"resourceVersion": job.resource_version}
    if update.accounting_text != job.accounting_text:
        metadata["annotations"] = {ANNOTATION_BOOKS: update.accounting_text}
    body = {"metadata": metadata, **status.patch(update.status)}
    return request.merge_patch(request.JOBS, job.namespace, job.name, body, subresource="status")


def _accounting_patch(job: Job, new: TrainerAccounting) -> request.Request:
    """A JSON Patch that replaces the annotation if it still is the one in `job`."""
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
    """Versions of one kind only grow (API conventions since 1.35; earlier in practice)."""
    return int(job.resource_version) if job.resource_version.isdecimal() else 0
