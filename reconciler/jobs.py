"""Writes to Jobs: books, status, parallelism. Reads its own writes.

A watch event about a Job can be older than our newest write to it; the answers to writes are
kept, and an older record never replaces a newer one.
"""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class Report:
    """What a job should say of itself."""

    job: Job
    status: JobStatus
    books_text: str


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

    def write_books(self, wanted: Sequence[tuple[Job, Books]], pool: Executor) -> list[bool]:
        """Replaces the books of each job if they are still the ones it was read with."""
        answers = pool.map(lambda pair: self._try(pair[0], _books_patch(*pair)), wanted)
        return [self._took(job, answer) for (job, _), answer in zip(wanted, answers, strict=True)]

    def write_reports(self, reports: Sequence[Report], pool: Executor) -> list[bool]:
        """Replaces status and books of each job, in one write, if it is still the one it was."""
        answers = pool.map(lambda report: self._try(report.job, _report_patch(report)), reports)
        return [
            self._took(report.job, answer) for report, answer in zip(reports, answers, strict=True)
        ]

    def write_parallelism(self, job: Job, count: int) -> bool:
        """Sets how many pods the built-in controller keeps."""
        body = {"spec": {"parallelism": count}, "metadata": {"uid": job.uid}}
        asked = request.merge_patch(request.JOBS, job.namespace, job.name, body)
        return self._took(job, self._try(job, asked))

    def _try(self, job: Job, asked: request.Request) -> bytes | None:
        """The answer, or None: a lost race is no error, the next plan sees it. On any thread."""
        try:
            return self._api.send(replace(asked, timeout_s=_TIMEOUT_S))
        except (errors.Conflict, errors.NotFound) as error:
            log.debug("job changed meanwhile", extra=keys(job=job.key, error=str(error)))
        except errors.KubeError as error:
            log.warning("job not written", extra=keys(job=job.key, error=str(error)))
        return None

    def _took(self, job: Job, answer: bytes | None) -> bool:
        """Enters what the API server made of a write; False where there is nothing to enter."""
        record = decode.job(orjson.loads(answer)) if answer is not None else None
        if record is None:
            return False
        self._newest[job.uid] = record
        self._index.put_job(record)
        return True


def _report_patch(report: Report) -> request.Request:
    """Merge patch of the status subresource, which takes annotations along (seen on 1.36)."""
    job = report.job
    metadata: dict[str, object] = {"resourceVersion": job.resource_version}
    if report.books_text != job.books_text:
        metadata["annotations"] = {ANNOTATION_BOOKS: report.books_text}
    body = {"metadata": metadata, **status.patch(report.status)}
    return request.merge_patch(request.JOBS, job.namespace, job.name, body, subresource="status")


def _books_patch(job: Job, opened: Books) -> request.Request:
    """JSON Patch that replaces the annotation if it is the one that `job` was read with."""
    path = "/metadata/annotations/" + ANNOTATION_BOOKS.replace("/", "~1")
    test: dict[str, object] = (
        {"op": "test", "path": path, "value": job.books_text}
        if job.books_text
        else {"op": "test", "path": "/metadata/resourceVersion", "value": job.resource_version}
    )
    ops: list[dict[str, object]] = [test, {"op": "add", "path": path, "value": books.show(opened)}]
    return request.json_patch(request.JOBS, job.namespace, job.name, ops)


def _version(job: Job) -> int:
    """Resource versions of one kind only grow (API conventions since 1.35; before, in practice)."""
    return int(job.resource_version) if job.resource_version.isdecimal() else 0
