"""Which queue a job is in and what it weighs: annotations of the Job, as far as the policy allows.

A tenant writes both annotations. Where the policy lists queues, a namespace uses those that name it;
a weight above the queue's highest counts as that (docs/decisions/0030).
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
        """The rules of a policy."""
        return cls(policy.queues, policy.fairness.max_weight)

    def check(self, namespace: str, annotations: Mapping[str, str]) -> None:
        """Rejects a queue that jobs of the namespace may not use, and a weight above its highest.

        Raises:
            JobError: the annotation, and what would be right.
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
        """Rejects that a running job changes into a queue that lends to others.

        Its guaranteed trainers would count there, whatever the queue's nominal quota is: whoever may
        use two queues would start jobs in the one and gather them in the other.

        Args:
            namespace: The job's namespace.
            old: The annotations that it has.
            new: Those that it gets.
            may_run: Whether it may have trainers now.

        Raises:
            JobError: the annotation, and what to do.
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
        """The queue in which a job with such annotations is."""
        named = annotations.get(ANNOTATION_QUEUE, "")
        is_default = not named or self._refusal(namespace, named)
        return self._default(namespace) if is_default else named

    def applied(self, job: Job) -> Job:
        """The job in the queue and with the weight that it has by these rules.

        One that names a queue of others is invalid: it keeps its trainers and gets no new ones.
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
        """Why jobs of a namespace may not use a queue, in one line; "" where they may."""
        allowed = [queue.name for queue in self.queues if _admits(queue, namespace)]
        if not (self.queues and named) or named in allowed:
            return ""
        advice = f"write {' or '.join(allowed[:5])}, or leave it out" if allowed else "leave it out"
        return (
            f"{ANNOTATION_QUEUE} is {named!r}, a queue that the cluster's policy does not give to "
            f"namespace {namespace}: {advice}"
        )

    def _default(self, namespace: str) -> str:
        """The queue of jobs that name none: the first default queue of their namespace, or ""."""
        defaults = (queue for queue in self.queues if queue.default)
        return next((queue.name for queue in defaults if _admits(queue, namespace)), "")

    def _highest(self, name: str) -> int:
        """The highest weight of a job in a queue."""
        own = next((queue.max_weight for queue in self.queues if queue.name == name), None)
        return self.max_weight if own is None else own


_ANY = QueueRules()


def _admits(queue: Queue, namespace: str) -> bool:
    return any(fnmatchcase(namespace, pattern) for pattern in queue.namespaces)
