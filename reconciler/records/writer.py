"""Writes the decision log to the API server on its own thread (docs/decisions/0059).

It writes only while this process leads. If the API server is slow or refuses writes, a namespace's records are
delayed, and finally dropped and counted. The control loop never waits for a write.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kube import record_log, request
from kube.api import Api
from kube.errors import KubeError, NotFound
from kube.reading import list_all
from kube.request import DECISIONLOGS
from policy.document.model import Policy
from policy.records import CLUSTER, Record
from reconciler.records.inbox import Entry, RecordInbox
from reconciler.records.namespace_log import NamespaceLog, Write
from reconciler.records.objective import ABOUT as OBJECTIVE
from runtime import clock
from runtime.backoff import Backoff, Backoffs
from runtime.logs import keys

log = logging.getLogger(__name__)

EVERY_S = 2.0
"""Interval between two rounds of writes."""
MAX_WRITES = 20
"""Writes per round, which limits the log to ten requests per second."""
MAX_SEGMENTS = 3_000
"""Maximum number of segments in all namespaces together, about 15 MB."""
KEEP_S = 7 * 86_400.0
"""Age at which segments are deleted."""
_FIRST_PAUSE_S, _MAX_PAUSE_S, _CALM_S = 2.0, 300.0, 600.0
_MAX_NAMESPACES = 2_000
Listener = Callable[[str, Record], None]
"""Called on the writer's thread with the namespace of a record, and the record."""


class RecordWriter:
    """Writes the DecisionLogs; no other component writes them."""

    def __init__(
        self,
        api: Api,
        inbox: RecordInbox,
        leads: Callable[[], bool],
        *,
        policy: Callable[[], Policy] = Policy,
        epoch_s: Callable[[], float] = clock.epoch_s,
        keep_s: float = KEEP_S,
    ) -> None:
        """Initializes the record writer.

        Args:
            api: Sends the requests.
            inbox: The records to write.
            leads: Returns whether this process is the leader.
            policy: Returns the policy in effect; nothing is written for namespaces in which it disables EDL.
            epoch_s: Returns the seconds since the epoch.
            keep_s: How long records are kept.
        """
        self._api = api
        self._inbox = inbox
        self._leads = leads
        self._policy = policy
        self._epoch_s = epoch_s
        self._keep_s = keep_s
        self._logs: dict[str, NamespaceLog] | None = None
        """Namespace -> its log; None until the stored logs have been read."""
        self._order: list[str] = []
        """Namespaces in the order of their turns."""
        self._backoffs = Backoffs[str](_FIRST_PAUSE_S, _MAX_PAUSE_S, _CALM_S)
        self._load_backoff, self._load_after_s = Backoff(_FIRST_PAUSE_S, _MAX_PAUSE_S), 0.0
        self._prefix = ""
        self._dropped = 0
        self.listeners: list[Listener] = []
        self.written = 0
        """Records that were stored on the API server."""
        self.bytes_written = 0
        """Bytes of all request bodies."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="records", daemon=True)

    @property
    def dropped(self) -> int:
        """Records that were given up before they were stored."""
        logs = tuple((self._logs or {}).values())
        return self._inbox.dropped + self._dropped + sum(log.dropped for log in logs)

    @property
    def segments(self) -> int:
        """Stored segments of the history; 0 while this process does not lead."""
        return sum(log.segments for log in tuple((self._logs or {}).values()))

    def start(self) -> None:
        """Starts the thread; may be called once."""
        self._thread.start()

    def stop(self) -> None:
        """Writes the remaining records, within at most a few seconds."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_S):
            self.try_round()
        self.try_round()

    def try_round(self) -> None:
        """Runs one round; an internal error only ends this round."""
        try:
            self.round()
        except Exception:  # a record that cannot be written must not end the log
            log.exception("could not write records")

    def round(self) -> None:
        """Writes the records that are due, to at most `MAX_WRITES` objects."""
        if not self._leads():
            if self._logs is not None:
                self._dropped += sum(log.dropped + log.unwritten for log in self._logs.values())
                self._logs = None
                self._inbox.restart()
            return
        now_s = self._epoch_s()
        logs = self._logs or self._load(now_s)
        if logs is None:
            return
        self._forget_unknown(logs, now_s)
        for entry in self._inbox.drain():
            self._take_in(entry, logs, now_s)
        budget = MAX_WRITES
        for namespace in list(self._order):
            if budget <= 0:
                break
            if not self._backoffs.is_waiting(namespace, now_s):
                self._order.remove(namespace)
                self._order.append(namespace)
                budget -= self._write(namespace, logs, now_s)
        self._limit(logs)

    def _load(self, now_s: float) -> dict[str, NamespaceLog] | None:
        """Reads the logs that earlier leaders have stored."""
        if now_s < self._load_after_s:
            return None
        try:
            objects = list_all(self._api, DECISIONLOGS)
        except KubeError as error:
            pause_s = self._load_backoff.next_s()
            self._load_after_s = now_s + pause_s
            log.warning("could not read decision log", extra=keys(error=error, pause_s=pause_s))
            return None
        self._load_backoff.reset()
        self._prefix = f"edl-{int(now_s * 1000):013}"
        stored: dict[str, dict[str, Any]] = {}
        for obj in objects:
            metadata = obj["metadata"]
            stored.setdefault(metadata["namespace"], {})[metadata["name"]] = obj
        self._logs = {
            namespace: NamespaceLog(self._prefix, segments)
            for namespace, segments in stored.items()
        }
        self._order = list(self._logs)
        self._inbox.jobs = None
        if CLUSTER in self._logs:
            self._inbox.restored = self._logs[CLUSTER].current.get(OBJECTIVE)
        return self._logs

    def _forget_unknown(self, logs: dict[str, NamespaceLog], now_s: float) -> None:
        """Drops current decisions about jobs that were deleted while no process was leading."""
        planned, self._inbox.jobs = self._inbox.jobs, frozenset()
        if not planned:
            self._inbox.jobs = planned
            return
        for namespace_log in logs.values():
            for job in [job for job in namespace_log.current if "/" in job and job not in planned]:
                namespace_log.forget(job, now_s)

    def _take_in(self, entry: Entry, logs: dict[str, NamespaceLog], now_s: float) -> None:
        if entry.namespace != CLUSTER and not self._policy().acts_in(entry.namespace):
            return
        namespace_log = logs.get(entry.namespace)
        if namespace_log is None:
            if len(logs) >= _MAX_NAMESPACES:
                self._dropped += 1
                return
            namespace_log = logs[entry.namespace] = NamespaceLog(self._prefix, {})
            self._order.append(entry.namespace)
        if entry.record is None:
            namespace_log.forget(entry.job, now_s)
            return
        if entry.is_current:
            namespace_log.set_current(entry.record, now_s)
        else:
            namespace_log.add(entry.record)
        for listener in self.listeners:
            listener(entry.namespace, entry.record)

    def _write(self, namespace: str, logs: dict[str, NamespaceLog], now_s: float) -> int:
        """Writes and deletes the objects of a namespace that are due; returns the number of requests."""
        namespace_log = logs[namespace]
        count = 0
        try:
            for write in namespace_log.writes(now_s):
                count += 1
                self._store(namespace, write)
                self.written += namespace_log.written(write, now_s)
            for name in namespace_log.deletions(now_s - self._keep_s)[:MAX_WRITES]:
                count += 1
                self._delete(namespace, name)
                namespace_log.deleted(name)
            self._backoffs.end(namespace)
            if (
                namespace_log.is_empty
            ):  # without this, deleted namespaces would count toward the limit forever
                self._drop(namespace, logs)
        except NotFound:  # the namespace was deleted, and its log with it
            self._drop(namespace, logs)
        except KubeError as error:
            self._backoffs.begin(namespace, now_s)
            log.warning("could not write records", extra=keys(namespace=namespace, error=error))
        return count

    def _drop(self, namespace: str, logs: dict[str, NamespaceLog]) -> None:
        """Drops the log of a namespace."""
        namespace_log = logs.pop(namespace)
        self._dropped += namespace_log.dropped + namespace_log.unwritten
        self._order.remove(namespace)

    def _store(self, namespace: str, write: Write) -> None:
        labels = {record_log.LABEL_LOG: write.log}
        body = {"metadata": {"name": write.name, "labels": labels}, **write.fields}
        api_request = request.merge_patch(DECISIONLOGS, namespace, write.name, body)
        try:
            self._api.send(api_request)
        except NotFound:
            self._api.send(request.create(DECISIONLOGS, namespace, body))
        self.bytes_written += len(api_request.body)

    def _delete(self, namespace: str, name: str) -> None:
        with suppress(NotFound):
            self._api.send(request.delete(DECISIONLOGS, namespace, name))

    def _limit(self, logs: dict[str, NamespaceLog]) -> None:
        """Gives up the oldest segments of all namespaces while there are too many segments."""
        excess = sum(namespace_log.segments for namespace_log in logs.values()) - MAX_SEGMENTS
        for _ in range(excess):
            min(logs.values(), key=lambda namespace_log: namespace_log.oldest_s).give_up_oldest()
