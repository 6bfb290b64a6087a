"""Keeps the objects of one kind in memory as records: lists once, then watches.

`kube.cache` and the webhook use it. Each reflector has its own thread; readers take the lock of `Changes`.
After a 410, over HTTP or inside the stream, it lists again. After any other failure it resumes the watch
from the last resource version, with a back-off.

It also lists again after `SILENT_S` without a message. Even a healthy API server may send no bookmark: a
bookmark must have a newer version than the one with which the watch started (cacheWatcher.process). If a
resource does not change, the watch cache learns newer versions from etcd's progress notifications, which come
every ten minutes unless etcd sets --watch-progress-notify-interval.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Generic, TypeVar

import orjson

from kube import errors, json_text, request
from kube.api import Api, Stream
from kube.changes import Changes
from kube.store import Store
from runtime import clock
from runtime.backoff import Backoff

T = TypeVar("T")
Object = Mapping[str, Any]

log = logging.getLogger(__name__)

HEALTHY_S = 60.0
"""A watch that lasted this long was healthy, so the back-off is reset."""
_MIN_WATCH_S = 240
_MAX_WATCH_S = 300
_STOP_S = 5.0
_MAX_PAUSE_S = 5.0
"""Longest pause between two attempts; the cache must not stay stale for long after a short outage."""
_RELIST_AFTER = 5
"""Number of consecutive failed watches after which the resource version is no longer trusted."""
SILENT_S = request.WATCH_TIMEOUT_S - 5.0
"""After this long without a message, the reflector lists again."""
_BOOKMARK_S = 63.0
"""A watch receives its first bookmark within this time, if it receives any."""
_SHORT_WATCH_S = 5


@dataclass(frozen=True, slots=True)
class ReflectorCounts:
    """Counters of a reflector since it was created."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    """Number of events, including bookmarks."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Number of errors by `KubeError.kind`, or by "decode" (malformed objects) or "listener" (its errors)."""


class Reflector(Generic[T]):
    """A watch of one kind of object, with a store of its records.

    Records are stored by uid: an object that is recreated under the same name is another object.
    """

    def __init__(
        self,
        api: Api,
        resource: request.Resource,
        decode: Callable[[Object], T | None],
        *,
        namespace: str | None = None,
        name: str = "",
        label_selector: str = "",
        changes: Changes | None = None,
        clock_s: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        """Initializes the reflector.

        Args:
            api: Sends the requests.
            resource: The kind to watch.
            decode: Converts an object to a record, or to None if it is not stored. Equal records do not
                count as changes. Called on the watch thread only.
            namespace: The namespace; None for all.
            name: Name of a single object to watch; "" for all.
            label_selector: Selects objects by label; evaluated by the server.
            changes: Shared lock and counter; by default the reflector creates its own.
            clock_s: A monotonic clock.
        """
        self.changes = changes or Changes()
        self._api = api
        self._resource = resource
        self._decode = decode
        self._namespace = namespace
        self._fields = f"metadata.name={name}" if name else ""
        self._labels = label_selector
        self._clock_s = clock_s
        self._random = Random()  # noqa: S311 - jitter is not security-sensitive
        self._store: Store[T] = Store(resource.plural, self.changes)
        self._resume_version = ""
        self._synced = False
        self._last_contact_s = clock_s()
        self._failed_watches = 0
        self._counts: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._stopping = threading.Event()
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None

    # Methods for readers, on any thread.

    @property
    def synced(self) -> bool:
        """Whether the first list is complete."""
        return self._synced

    @property
    def resource_version(self) -> str:
        """The resource version from which the next watch continues."""
        return self._resume_version

    @property
    def counts(self) -> ReflectorCounts:
        """The counters so far, for metrics."""
        with self.changes.condition:
            broken = Counter(self._errors)
            broken["listener"] = self._store.listener_errors
            return ReflectorCounts(**self._counts, errors={k: n for k, n in broken.items() if n})

    def age_s(self, now_s: float) -> float:
        """Returns the seconds since the last message of the server, on this reflector's clock."""
        return max(0.0, now_s - self._last_contact_s)

    def records(self) -> tuple[T, ...]:
        """Returns all records, unordered; calls return the same tuple until a record changes."""
        return self._store.all()

    def listen(self, listener: Callable[[T | None, T | None], None]) -> None:
        """Calls `listener(old, new)` for every change from now on, in the stream's order.

        Existing records come first, as (None, record). The listener runs on the watch thread with the lock
        held: it must be short, must not raise, and must not take a lock that another thread holds while it
        reads records.
        """
        self._store.listen(listener)

    # Methods for the owner's thread.

    def start(self) -> None:
        """Starts to list and watch; may be called once."""
        name = f"watch-{self._resource.plural}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread at once, even inside a blocked read."""
        self.request_stop()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def request_stop(self) -> None:
        """Requests the stop without waiting for the thread."""
        self._stopping.set()
        stream = self._stream
        if stream is not None:
            stream.close()

    def follow_once(self) -> bool:
        """Lists if needed, then follows one watch to its end; returns True if either failed.

        The thread calls this in a loop; a caller with its own loop may do so instead.
        """
        try:
            if not self._resume_version or self.age_s(self._clock_s()) >= SILENT_S:
                self._list()
            if not self._stopping.is_set():
                self._follow()
        except errors.KubeError as error:
            self._failed(error)
        except Exception:  # a watch thread that dies silently would leave stale records forever
            self._count_error("internal")
            log.exception("watch failed", extra={"resource": self._resource.plural})
            self._resume_version = ""
        else:
            self._failed_watches = 0
            return False
        return True

    # Methods of the watch thread.

    def _run(self) -> None:
        backoff = Backoff(max_s=_MAX_PAUSE_S, jitter=self._random.random)
        while not self._stopping.is_set():
            started_s, events_before = self._clock_s(), self._counts["events"]
            failed = self.follow_once()
            # During a burst of changes, a busy API server ends watches whose small buffer is full. A watch
            # that delivered events is therefore resumed at once.
            healthy = (
                self._clock_s() - started_s >= HEALTHY_S or self._counts["events"] > events_before
            )
            if healthy:
                backoff.reset()
            if failed or not healthy:  # also if the server ends every watch at once
                self._stopping.wait(backoff.next_s())

    def _failed(self, error: errors.KubeError) -> None:
        if self._stopping.is_set():
            return
        self._count_error(error.kind)
        self._failed_watches += 1
        server_side = isinstance(error, errors.Unavailable | errors.TooManyRequests)
        if not server_side or self._failed_watches >= _RELIST_AFTER:
            self._resume_version = ""
            self._failed_watches = 0
        log.warning(
            "watch broken",
            extra={"resource": self._resource.plural, "kind": error.kind, "error": str(error)},
        )

    def _list(self) -> None:
        records: dict[str, T] = {}
        token = ""
        while True:
            list_request = request.list_page(
                self._resource,
                self._namespace,
                token=token,
                field_selector=self._fields,
                label_selector=self._labels,
            )
            page = json_text.loads(self._api.send(list_request))
            for item in page["items"] or ():
                record = self._read(item)
                if record is not None:
                    records[item["metadata"]["uid"]] = record
            token = page["metadata"].get("continue") or ""
            if not token:
                break
            if self._stopping.is_set():
                return
            time.sleep(0)  # let request threads take the GIL between two pages
        self._replace(records, page["metadata"]["resourceVersion"])

    def _replace(self, records: dict[str, T], resource_version: str) -> None:
        """Replaces all records by a complete list, atomically for readers."""
        with self.changes.condition:
            self._store.replace(records)
            self._resume_version = resource_version
            self._counts["lists"] += 1
            self._last_contact_s = self._clock_s()
            if not self._synced:
                self._synced = True
                self.changes.bump()

    def _follow(self) -> None:
        watch_request = request.watch(
            self._resource,
            self._namespace,
            resource_version=self._resume_version,
            timeout_s=self._watch_s(),
            field_selector=self._fields,
            label_selector=self._labels,
        )
        with self._api.stream(watch_request) as stream:
            self._counts["watches"] += 1
            self._stream = stream
            try:
                for line in stream:
                    if self._stopping.is_set():
                        return
                    self._event(line, watch_request.line)
            except errors.Unavailable:
                if self.age_s(self._clock_s()) < SILENT_S:
                    raise
                log.info("watch silent", extra={"resource": self._resource.plural})
            finally:
                self._stream = None

    def _watch_s(self) -> int:
        """Returns how long the server should keep the next watch open, in seconds.

        After an interruption the watch is short: two seconds before its end the server sends a bookmark
        (cacheWatcher.nextBookmarkTime), which confirms sooner than usual that no event was missed.
        """
        left_s = SILENT_S - self.age_s(self._clock_s())
        if left_s >= _BOOKMARK_S:
            return self._random.randint(_MIN_WATCH_S, _MAX_WATCH_S)
        return max(_SHORT_WATCH_S, int(left_s))

    def _event(self, line: bytes, request_line: str) -> None:
        try:
            event = json_text.loads(line)
        except orjson.JSONDecodeError as error:
            raise errors.Unavailable("an event was cut off", request=request_line) from error
        obj = event["object"]
        if event["type"] == "ERROR":
            raise errors.from_status(obj, request_line)
        resource_version = obj["metadata"]["resourceVersion"]
        record = self._read(obj) if event["type"] in ("ADDED", "MODIFIED") else None
        with self.changes.condition:
            self._counts["events"] += 1
            self._last_contact_s = self._clock_s()
            self._failed_watches = 0
            if event["type"] != "BOOKMARK" and not self._is_old_event(resource_version):
                self._store.put(obj["metadata"]["uid"], record)
            self._resume_version = resource_version

    def _is_old_event(self, resource_version: str) -> bool:
        """Returns whether an event repeats an earlier one: if so, its version is not newer."""
        if resource_version.isdecimal() and self._resume_version.isdecimal():
            return int(resource_version) <= int(self._resume_version)
        return resource_version == self._resume_version

    def _read(self, obj: Object) -> T | None:
        try:
            return self._decode(obj)
        except Exception as error:  # noqa: BLE001 - one object must not stop the watch of all others
            self._count_error("decode")
            name = (obj.get("metadata") or {}).get("name")
            log.warning(
                "object unreadable",
                extra={"resource": self._resource.plural, "object": name, "error": repr(error)},
            )
            return None

    def _count_error(self, kind: str) -> None:
        with self.changes.condition:
            self._errors[kind] += 1


def stop_all(reflectors: Collection[Reflector[Any]]) -> None:
    """Stops several watches in parallel, because each may take a moment."""
    for reflector in reflectors:
        reflector.request_stop()
    for reflector in reflectors:
        reflector.stop()
