"""Writes Kubernetes events about Jobs and the policy, as shown by `kubectl describe job`.

A thread writes them from a bounded queue, so that a slow API server never delays a plan. Events that do
not fit into the queue are dropped and counted. Each job and reason gets at most one event per `SPAN_S`:
the first is written at once, and repetitions are counted in the next one.
"""

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from kube import errors, request
from kube.api import Api
from kube.decode import ConfigMap
from kube.training_job import TrainingJob
from policy.cluster.snapshot import Job
from policy.names import MANAGER
from policy.timestamps import timestamp
from runtime import clock
from runtime.logs import keys

log = logging.getLogger(__name__)

SPAN_S = 10.0
_MAX_WAITING = 1000
_MAX_OF_NAMESPACE = _MAX_WAITING // 2
"""Maximum number of queued events of one namespace. The API server accepts about sixty events per second, and a
tenant with a thousand jobs may cause more."""
_KINDS = {
    Job: request.JOBS,
    TrainingJob: request.TRAININGJOBS,
    ConfigMap: request.CONFIGMAPS,
}
_MAX_MESSAGE_BYTES = 1000
"""Limit for EDL's messages; the API server allows 1024 bytes for the message of a core/v1 Event."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event to write about a Job, a TrainingJob, or the policy's ConfigMap."""

    about: Job | TrainingJob | ConfigMap
    reason: str
    message: str
    warning: bool = False


class EventRecorder:
    """Queues events of the loop and writes them on its own thread."""

    def __init__(self, api: Api, component: str, wall: Callable[[], datetime] = clock.now) -> None:
        """Initializes the event recorder.

        Args:
            api: Sends the events.
            component: Name of the reporting process.
            wall: Returns the time for the timestamps of events.
        """
        self._api = api
        self._component = component
        self._wall = wall
        self._queue: queue.Queue[Event | None] = queue.Queue(_MAX_WAITING)
        self._waiting: Counter[str] = Counter()
        """Namespace -> number of its events in the queue; guarded by the lock."""
        self._lock = threading.Lock()
        self._last: dict[str, dict[str, float]] = {}
        """uid -> reason -> time of the last event."""
        self._repeats: dict[str, Counter[str]] = {}
        self.dropped = 0
        """Events dropped because the queue, or their namespace's half of it, was full."""
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Starts the thread; may be called once."""
        self._thread.start()

    def stop(self) -> None:
        """Writes the queued events, within at most a few seconds."""
        if self._thread.is_alive():
            try:
                self._queue.put_nowait(None)
            except queue.Full:
                return
            self._thread.join(timeout=3.0)

    def record(self, event: Event, now_s: float) -> None:
        """Queues an event; never waits."""
        last = self._last.setdefault(event.about.uid, {})
        counts = self._repeats.setdefault(event.about.uid, Counter())
        if now_s - last.get(event.reason, -SPAN_S) < SPAN_S:
            counts[event.reason] += 1
            return
        last[event.reason] = now_s
        repeats = counts.pop(event.reason, 0)
        if repeats:
            text = f"{event.message} (repeated {repeats} times since the last event)"
            event = Event(event.about, event.reason, text, event.warning)
        if not self._put(event):
            self.dropped += 1

    def _put(self, event: Event) -> bool:
        """Queues an event, unless the queue or its namespace's share of it is full."""
        namespace = event.about.namespace
        with self._lock:
            if self._waiting[namespace] >= _MAX_OF_NAMESPACE:
                return False
            try:
                self._queue.put_nowait(event)
            except queue.Full:
                return False
            self._waiting[namespace] += 1
            return True

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""
        self.forget_uid(job.uid)

    def forget_uid(self, uid: str) -> None:
        """Drops the state of a deleted object."""
        self._last.pop(uid, None)
        self._repeats.pop(uid, None)

    def _run(self) -> None:
        while (event := self._queue.get()) is not None:
            self._note_taken(event.about.namespace)
            self._write(event)

    def _note_taken(self, namespace: str) -> None:
        with self._lock:
            self._waiting[namespace] -= 1
            if not self._waiting[namespace]:
                del self._waiting[namespace]

    def _write(self, event: Event) -> None:
        try:
            body = _body(event, self._component, self._wall())
            self._api.send(request.create(request.EVENTS, event.about.namespace, body))
        except errors.KubeError as error:
            log.warning(
                "could not write event",
                extra=keys(object=f"{event.about.namespace}/{event.about.name}", error=str(error)),
            )
        except Exception:  # caused by this event: the thread must go on to write the others
            log.exception(
                "could not write event",
                extra=keys(object=f"{event.about.namespace}/{event.about.name}"),
            )


def _body(event: Event, component: str, now: datetime) -> dict[str, Any]:
    stamp = timestamp(now.timestamp())
    about = event.about
    kind = _KINDS[type(about)]
    return {
        "metadata": {"name": f"{about.name}.{uuid4().hex[:16]}", "namespace": about.namespace},
        "involvedObject": {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        },
        "reason": event.reason,
        "message": event.message.encode()[:_MAX_MESSAGE_BYTES].decode(errors="ignore"),
        "type": "Warning" if event.warning else "Normal",
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
        "source": {"component": component},
        "reportingComponent": MANAGER,
        "reportingInstance": component,
    }
