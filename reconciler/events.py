"""Events on Jobs: what happened to whom and why, for `kubectl describe job`.

Written from a thread of its own out of a bounded queue, so that a slow API server never delays
a plan; what the queue cannot take is counted. One event per job and reason and span: the
first is written at once, what follows within the span is counted into the next.
"""

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from kube import errors, request
from kube.client import Api
from policy.names import MANAGER
from policy.snapshot import Job
from runtime import clock
from runtime.logs import keys

log = logging.getLogger(__name__)

SPAN_S = 10.0
_MOST_WAITING = 1000
_LONGEST = 1000
"""core/v1 Event messages may have 1024 bytes."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing to tell."""

    job: Job
    reason: str
    message: str
    warning: bool = False


class Recorder:
    """Takes events from the loop and writes them."""

    def __init__(self, api: Api, component: str, wall: Callable[[], datetime] = clock.now) -> None:
        """Starts nothing.

        Args:
            api: Where to.
            component: Who reports.
            wall: The clock events are stamped with.
        """
        self._api = api
        self._component = component
        self._wall = wall
        self._queue: queue.Queue[Event | None] = queue.Queue(_MOST_WAITING)
        self._last: dict[tuple[str, str], float] = {}
        self._held: dict[tuple[str, str], int] = {}
        self.dropped = 0
        """Events that found the queue full."""
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begins to write; once only."""
        self._thread.start()

    def stop(self) -> None:
        """Writes what waits, for at most a few seconds."""
        if self._thread.is_alive():
            try:
                self._queue.put_nowait(None)
            except queue.Full:
                return
            self._thread.join(timeout=3.0)

    def tell(self, event: Event, now_s: float) -> None:
        """Queues an event; never waits."""
        key = (event.job.uid, event.reason)
        if now_s - self._last.get(key, -SPAN_S) < SPAN_S:
            self._held[key] = self._held.get(key, 0) + 1
            return
        self._last[key] = now_s
        held = self._held.pop(key, 0)
        if held:
            text = f"{event.message} (and {held} more times since the last such event)"
            event = Event(event.job, event.reason, text, event.warning)
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self.dropped += 1

    def forget(self, job: Job) -> None:
        """Drops what is remembered of a job that is gone."""
        for memory in (self._last, self._held):
            for key in [key for key in memory if key[0] == job.uid]:
                del memory[key]

    def _run(self) -> None:
        while (event := self._queue.get()) is not None:
            self._write(event)

    def _write(self, event: Event) -> None:
        body = _body(event, self._component, self._wall())
        try:
            self._api.send(request.create(request.EVENTS, event.job.namespace, body))
        except errors.KubeError as error:
            log.warning("event not written", extra=keys(job=event.job.key, error=str(error)))


def _body(event: Event, component: str, now: datetime) -> dict[str, Any]:
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    job = event.job
    return {
        "metadata": {"name": f"{job.name}.{uuid4().hex[:16]}", "namespace": job.namespace},
        "involvedObject": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "namespace": job.namespace,
            "name": job.name,
            "uid": job.uid,
        },
        "reason": event.reason,
        "message": event.message.encode()[:_LONGEST].decode(errors="ignore"),
        "type": "Warning" if event.warning else "Normal",
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
        "source": {"component": component},
        "reportingComponent": MANAGER,
        "reportingInstance": component,
    }
