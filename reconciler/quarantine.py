"""Keeps objects out of planning while their data causes errors in EDL, so that others still get plans.

An error is attributed to a job where the job is handled (`contain`), or by planning without suspects
(`reconciler.plan_isolation`). The job is then replaced in the cluster state by an inert one, which is
reported, counts in quotas and keeps its minimum; rules read no other data of it. After a pause, which grows
with each failure, the job is planned again. A service pod is replaced by a pod that only uses capacity.
All of this is in memory: after a restart, the same error leads to the same quarantine. See
docs/decisions/0028.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from kube import errors
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, Pod
from policy.decisions import time
from runtime.backoff import Backoffs
from runtime.logs import keys, one_line

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_S = 10.0
MAX_S = 600.0
CALM_S = 1200.0
_MAX_ERROR_CHARS = 200
_POD_FIELDS = ("requests",)
_JOB_FIELDS = ("queue", "weight", "error", "requests")
"""Fields that depend on the policy; see `kube.state_feed.ClusterStateFeed.follow`."""
_MAX_FAULTS = 1000
"""Limit of errors kept between two ticks; a job causes only a few."""


@dataclass(frozen=True, slots=True)
class _Fault:
    """An error caused by one object."""

    uid: str
    error: Exception


@dataclass(slots=True)
class _Case:
    """An object in quarantine."""

    original: Job | Pod
    inert: Job | Pod
    text: str


class Quarantine:
    """The objects in quarantine. `contain` is safe on any thread; all other methods need the loop's thread."""

    def __init__(self, cluster: ClusterState) -> None:
        """Initializes an empty quarantine.

        Args:
            cluster: The cluster state, in which objects are replaced by inert ones until their pause ends.
        """
        self._cluster = cluster
        self._faults = deque[_Fault](maxlen=_MAX_FAULTS)
        self._cases: dict[str, _Case] = {}
        """uid -> the object in quarantine."""
        self._pauses = Backoffs[str](FIRST_S, MAX_S, CALM_S)
        """uid -> the pause during which the object is not planned."""
        self.total = {"job": 0, "pod": 0}
        """Number of quarantines so far, by kind of object."""

    @property
    def jobs(self) -> int:
        """Number of jobs in quarantine."""
        return sum(isinstance(case.original, Job) for case in self._cases.values())

    @contextmanager
    def contain(self, job: Job) -> Iterator[None]:
        """Catches any error in the block and puts the job into quarantine for it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever goes wrong must affect this job only
            self.blame(job, error)

    def blame(self, culprit: Job | Pod, error: Exception) -> None:
        """Records that an object caused an error; the next `apply` puts it into quarantine."""
        self._faults.append(_Fault(culprit.uid, error))
        if culprit.uid not in self._cases:
            text = "planning failed on the data of one object, which is left out of plans"
            log.error(text, exc_info=error, extra=keys(object=culprit.key, uid=culprit.uid))

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""
        self._cases.pop(job.uid, None)
        self._pauses.end(job.uid)

    def apply(self, now_s: float) -> None:
        """Updates the cluster state so that exactly the objects in quarantine are inert."""
        if not (self._faults or self._cases):
            return
        jobs = {job.uid: job for job in self._cluster.jobs.values()}
        # New errors since the last tick.
        while self._faults:
            fault = self._faults.popleft()
            culprit = jobs.get(fault.uid) or self._cluster.pods.get(fault.uid)
            if culprit is not None and fault.uid not in self._cases:
                self._begin(culprit, fault.error, now_s)
        # Objects in quarantine: they may have been deleted, changed by a watch event, or be due for a retry.
        for uid, case in tuple(self._cases.items()):
            current = jobs.get(uid) or self._cluster.pods.get(uid)
            if current is not None and current is not case.inert:
                current = self._revise(case, current)
            if current is None:
                del self._cases[uid]
            elif not self._pauses.is_waiting(uid, now_s):
                del self._cases[uid]
                if current is case.inert:
                    self._put(case.original)
            elif current is not case.inert or current is case.original:
                case.original = current
                case.inert = self._put(inert(current, case.text))

    def _begin(self, culprit: Job | Pod, error: Exception, now_s: float) -> None:
        until_s = self._pauses.begin(culprit.uid, now_s)
        text = (
            f"planning failed on its data ({one_line(error)[:_MAX_ERROR_CHARS]}): no new trainers "
            f"until {time(until_s)}, when EDL plans it again"
        )
        self._cases[culprit.uid] = _Case(culprit, culprit, text)
        self.total["job" if isinstance(culprit, Job) else "pod"] += 1

    def _revise(self, case: _Case, current: Job | Pod) -> Job | Pod:
        """Returns an updated inert record if only fields that depend on the policy changed, else `current`.

        The original record gets the changed fields too. It keeps the fields that an inert record lacks.
        """
        before = case.inert
        names = _JOB_FIELDS if isinstance(before, Job) else _POD_FIELDS
        if replace(current, **{name: getattr(before, name) for name in names}) != before:
            return current
        revised = {name: getattr(current, name) for name in names}
        case.original = replace(case.original, **revised)
        case.inert = self._put(inert(case.original, case.text))
        return case.inert

    def _put(self, record: Job | Pod) -> Job | Pod:
        """Puts a record into the cluster state; returns the stored version."""
        if isinstance(record, Job):
            self._cluster.put_job(record)
            return self._cluster.jobs[record.key]
        self._cluster.put_pod(record)
        return self._cluster.pods[record.uid]


class EdlError(errors.KubeError):
    """An internal error of EDL while building a request or reading its response."""

    def __str__(self) -> str:
        """Returns only the message, without status and request."""
        return self.message


def attempt(call: Callable[[], T]) -> T | errors.KubeError:
    """Runs the part of a step that concerns one job; returns any error as a failed request of that job.

    This way, the step's back-off and report for failed requests also handle internal errors.
    """
    try:
        return call()
    except errors.KubeError as error:
        return error
    except Exception as error:
        log.exception("could not build a job's request or read its answer")
        return EdlError(f"internal error of EDL: {one_line(error)}")


def inert(record: Job | Pod, text: str) -> Job | Pod:
    """Returns the object reduced to the data that quotas, capacity and a job's status need.

    Args:
        record: The object.
        text: Why the job is not planned; one line.
    """
    if isinstance(record, Pod):
        return Pod(
            namespace=record.namespace,
            name=record.name,
            uid=record.uid,
            requests=record.requests,
            priority=record.priority,
            node=record.node,
            phase=record.phase,
            gated=not record.node,
            deleting=record.deleting,
        )
    return Job(
        namespace=record.namespace,
        name=record.name,
        uid=record.uid,
        min_trainers=record.min_trainers,
        max_trainers=record.max_trainers,
        requests=record.requests,
        limits=record.limits,
        queue=record.queue,
        servers=record.servers,
        created_s=record.created_s,
        managed=record.managed,
        parallelism=record.parallelism,
        suspended=record.suspended,
        deleting=record.deleting,
        status=record.status,
        accounting_text=record.accounting_text,
        resource_version=record.resource_version,
        template_json=record.template_json,
        error=text,
        quarantined=True,
    )
