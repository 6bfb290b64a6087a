"""Writes to Jobs: books, status, parallelism. Reads its own writes.

A watch event about a Job can be older than our newest write to it; the answers to writes are
kept, and an older record never replaces a newer one.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace

import orjson

from kube import decode, errors, request
from kube.client import Api
from kube.live import Change
from policy import books
from policy.index import Index
from policy.names import ANNOTATION_BOOKS
from policy.snapshot import Books, Job, JobStatus
from reconciler import status
from runtime.logs import keys

log = logging.getLogger(__name__)

_TIMEOUT_S = 10.0


class JobWriter:
    """Owned by the loop's thread."""

    def __init__(self, api: Api, index: Index) -> None:
        self._api = api
        self._index = index
        self._newest: dict[str, Job] = {}

    def settle(self, changes: Mapping[str, Change[Job]]) -> None:
        """Puts our newer records back over older ones that a drain brought in."""
        for uid, change in changes.items():
            mine = self._newest.get(uid)
            if mine is None:
                continue
            if change.new is None:
                del self._newest[uid]
            elif _version(change.new) < _version(mine):
                self._index.put_job(mine)

    def write_books(self, job: Job, opened: Books) -> bool:
        """Replaces the books if they are still the ones `job` was read with."""
        text = books.show(opened)
        path = "/metadata/annotations/" + ANNOTATION_BOOKS.replace("/", "~1")
        test: dict[str, object] = (
            {"op": "test", "path": path, "value": job.books_text}
            if job.books_text
            else {"op": "test", "path": "/metadata/resourceVersion", "value": job.resource_version}
        )
        ops: list[dict[str, object]] = [test, {"op": "add", "path": path, "value": text}]
        return self._send(job, request.json_patch(request.JOBS, job.namespace, job.name, ops))

    def write_status(self, job: Job, wanted: JobStatus) -> bool:
        """Replaces the status if the Job is still the one `job` was read from."""
        body = status.patch(wanted) | {"metadata": {"resourceVersion": job.resource_version}}
        return self._send(
            job,
            request.merge_patch(request.JOBS, job.namespace, job.name, body, subresource="status"),
        )

    def write_parallelism(self, job: Job, count: int) -> bool:
        """Sets how many pods the built-in controller keeps."""
        body = {"spec": {"parallelism": count}, "metadata": {"uid": job.uid}}
        return self._send(job, request.merge_patch(request.JOBS, job.namespace, job.name, body))

    def _send(self, job: Job, asked: request.Request) -> bool:
        """Whether the write went through; a lost race is no error, the next plan sees it."""
        try:
            answer = orjson.loads(self._api.send(replace(asked, timeout_s=_TIMEOUT_S)))
        except (errors.Conflict, errors.NotFound) as error:
            log.debug("job changed meanwhile", extra=keys(job=job.key, error=str(error)))
            return False
        except errors.KubeError as error:
            log.warning("job not written", extra=keys(job=job.key, error=str(error)))
            return False
        record = decode.job(answer)
        if record is None:
            return False
        self._newest[job.uid] = record
        self._index.put_job(record)
        return True


def _version(job: Job) -> int:
    """Resource versions of one kind only grow (API conventions since 1.35; before, in practice)."""
    return int(job.resource_version) if job.resource_version.isdecimal() else 0
