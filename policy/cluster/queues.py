"""A job's queue and weight: annotations of the Job, within the limits of the policy.

A tenant writes both annotations. If the policy lists queues, a namespace may use only the queues that
name it. A weight above the queue's highest weight counts as the highest (docs/decisions/0030).
"""

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from policy.admission import job_settings
from policy.cluster.snapshot import Job
from policy.document.model import Policy
from policy.document.queue_model import Queue
from policy.errors import JobError
from policy.names import ANNOTATION_QUEUE, ANNOTATION_WEIGHT


class QueueRules(NamedTuple):
    """The policy's rules for queues and weights; by default any queue and any weight."""

    queues: tuple[Queue, ...] = ()
    max_weight: int = job_settings.MAX_WEIGHT

    @classmethod
    def of(cls, policy: Policy) -> "QueueRules":
        """Returns a policy's rules for queues and weights."""
        return cls(policy.queues, policy.fairness.max_weight)

    def check(self, namespace: str, annotations: Mapping[str, str]) -> None:
        """Rejects a queue that jobs of the namespace may not use, and a weight above the queue's highest.

        Raises:
            JobError: names the annotation and what would be valid.
        """
        queue, weight = job_settings.queue(annotations), job_settings.weight(annotations)
        refusal = self._refusal(namespace, queue)
        if refusal:
            raise JobError(refusal)
        highest = self._highest(queue or self._default(namespace))
        if weight > highest:
            raise JobError(
                f"{ANNOTATION_WEIGHT} is {weight}: the cluster's policy allows at most {highest} here"
            )

    def check_move(
        self, namespace: str, old: Mapping[str, str], new: Mapping[str, str], *, may_run: bool
    ) -> None:
        """Rejects moving a running job into a queue that lends capacity to others.

        The job's guaranteed trainers would count there even beyond the queue's nominal quota: a user
        of two queues could start jobs in one queue and gather them in the other.

        Args:
            namespace: The job's namespace.
            old: The job's annotations before the change.
            new: The job's annotations after the change.
            may_run: Whether the job may have trainers now.

        Raises:
            JobError: names the annotation and what to do.
        """
        queue = self._effective(namespace, new)
        lends = any(listed.name == queue and listed.nominal_quota for listed in self.queues)
        if may_run and lends and queue != self._effective(namespace, old):
            raise JobError(
                f"{ANNOTATION_QUEUE} would put a Job that may run into queue {queue!r}, which has a "
                "nominalQuota: set spec.suspend to true, wait until its trainers have ended "
                "(status.active), then change the queue"
            )

    def _effective(self, namespace: str, annotations: Mapping[str, str]) -> str:
        """Returns the queue of a job with these annotations."""
        named = annotations.get(ANNOTATION_QUEUE, "")
        is_default = not named or self._refusal(namespace, named)
        return self._default(namespace) if is_default else named

    def applied(self, job: Job) -> Job:
        """Returns the job with the queue and weight that these rules give it.

        A job that names a queue it may not use is invalid: it keeps its trainers and gets no new ones.
        """
        if self == _ANY:
            return job
        refusal = self._refusal(job.namespace, job.queue)
        queue = self._default(job.namespace) if refusal or not job.queue else job.queue
        weight = min(job.weight, self._highest(queue))
        if (queue, weight) == (job.queue, job.weight) and not refusal:
            return job
        return replace(job, queue=queue, weight=weight, error=job.error or refusal)

    def _refusal(self, namespace: str, named: str) -> str:
        """Returns in one line why jobs of a namespace may not use a queue; "" if they may."""
        allowed = [queue.name for queue in self.queues if _admits(queue, namespace)]
        if not (self.queues and named) or named in allowed:
            return ""
        advice = f"write {' or '.join(allowed[:5])}, or leave it out" if allowed else "leave it out"
        return (
            f"{ANNOTATION_QUEUE} is {named!r}, a queue that the cluster's policy does not give to "
            f"namespace {namespace}: {advice}"
        )

    def _default(self, namespace: str) -> str:
        """Returns the first default queue of a namespace, for jobs that name no queue; "" for none."""
        defaults = (queue for queue in self.queues if queue.default)
        return next((queue.name for queue in defaults if _admits(queue, namespace)), "")

    def _highest(self, name: str) -> int:
        """Returns the highest weight that a job in a queue may have."""
        own = next((queue.max_weight for queue in self.queues if queue.name == name), None)
        return self.max_weight if own is None else own


_ANY = QueueRules()


def _admits(queue: Queue, namespace: str) -> bool:
    return any(fnmatchcase(namespace, pattern) for pattern in queue.namespaces)
