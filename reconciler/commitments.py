"""Writes on trainers how much of their training would be lost with them, as their master says.

An annotation, because who chooses victims reads it in two processes: the extender for
kube-scheduler and the plan here. It is coarse and late on purpose: what is written wakes everybody
who watches pods (docs/decisions/0009). Only that another trainer leads its group is written as soon
as it is known, on those two alone: the leader is the dearest of its tier (docs/decisions/0013).
"""

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace

from kube import errors, request
from kube.client import Api
from policy.index import Index
from policy.names import ANNOTATION_UNCOMMITTED
from policy.snapshot import Job, Pod
from reconciler.words import Word
from runtime.logs import keys

log = logging.getLogger(__name__)

EVERY_S = 5.0
STEP_S = 5.0
"""Seconds of training that are worth a write; less never decides who goes."""
MOST = 100
"""Writes at one time; those that differ most come first."""
_TIMEOUT_S = 5.0


class Commitments:
    """Owned by the loop's thread; the writes run in the pool, and nobody waits for them."""

    def __init__(self, api: Api) -> None:
        """Starts nothing.

        Args:
            api: Where writes go.
        """
        self._api = api
        self._due_s = 0.0
        self._writes: list[Future[None]] = []
        self._leaders: dict[str, int | None] = {}
        """Job uid -> who led its trainers when that was last written."""

    def write(
        self,
        jobs: Iterable[Job],
        index: Index,
        words: Mapping[str, Word],
        now_s: float,
        pool: Executor,
    ) -> None:
        """Begins to write what has changed enough; nothing while older writes are under way."""
        led = {uid: word.leader for uid, word in words.items()}
        due = now_s >= self._due_s
        if not (due or led != self._leaders) or not all(write.done() for write in self._writes):
            return
        if due:
            self._due_s = now_s + EVERY_S
        changes = [
            (pod, steps)
            for job in jobs
            if (word := words.get(job.uid)) is not None
            for pod in index.trainers(job)
            if due or pod.trainer_id in self._moved(job, word)
            if (steps := _steps(pod, word)) is not None
        ]
        self._leaders = led
        changes.sort(key=lambda change: -abs(change[1] - change[0].uncommitted_s))
        self._writes = [pool.submit(self._write, pod, steps) for pod, steps in changes[:MOST]]

    def _moved(self, job: Job, word: Word) -> tuple[int | None, ...]:
        """Who leads now and who led before, where that differs."""
        before = self._leaders.get(job.uid)
        return () if before == word.leader else (before, word.leader)

    def _write(self, pod: Pod, seconds: int) -> None:
        annotations = {ANNOTATION_UNCOMMITTED: str(seconds)}
        body = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        asked = request.merge_patch(request.PODS, pod.namespace, pod.name, body)
        try:
            self._api.send(replace(asked, timeout_s=_TIMEOUT_S))
        except errors.KubeError as error:
            log.debug("uncommitted work not written", extra=keys(pod=pod.key, error=str(error)))


def _steps(pod: Pod, word: Word) -> int | None:
    """What the annotation should say, in whole steps; None where what it says is near enough."""
    seconds = word.uncommitted.get(pod.trainer_id, 0.0)
    if abs(seconds - pod.uncommitted_s) < STEP_S:
        return None
    return int(seconds / STEP_S) * int(STEP_S)
