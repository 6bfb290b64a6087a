"""One kind of object, kept as records in memory: list once, then follow the changes.

Who calls: `kube.cache` for the cluster, the webhook for what it needs to know. A thread per
reflector does all of it; readers take the lock of `Changes`. An answer of 410, over HTTP or
inside the stream, means listing again; any other failure means watching on from where it
broke, after a back-off.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Generic, TypeVar

import orjson

from kube import errors, request
from kube.backoff import Backoff
from kube.changes import Changes
from kube.client import Api, Stream
from kube.records import Records
from runtime import clock

T = TypeVar("T")
Object = Mapping[str, Any]

log = logging.getLogger(__name__)

HEALTHY_S = 60.0
"""A watch that held this long was well; the back-off starts small again."""
_WATCH_S = (240, 300)
_STOP_S = 5.0
_LONGEST_PAUSE_S = 5.0
"""Between two tries: an API server that was away for seconds must not leave us blind for 30."""
_RELIST_AFTER = 5
"""Failed watches in a row after which the resource version itself is suspected."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a reflector has done since it started."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    """Bookmarks included."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """By `KubeError.kind`; "decode" for objects that could not be read, "listener" for ours."""


class Reflector(Generic[T]):
    """Records of one kind, as the API server has them a moment ago.

    Records are kept by uid, so that an object made again under the same name is another one.
    """

    def __init__(
        self,
        api: Api,
        resource: request.Resource,
        decode: Callable[[Object], T | None],
        *,
        namespace: str | None = None,
        field_selector: str = "",
        label_selector: str = "",
        changes: Changes | None = None,
        clock_s: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        """Starts nothing.

        Args:
            api: The API server.
            resource: What to follow.
            decode: Object -> record; None for what is not to be kept. Equal records are no
                change. Called on the watch thread only.
            namespace: None for all.
            field_selector: Evaluated by the server.
            label_selector: Evaluated by the server.
            changes: Shared lock and counter; None for one of its own.
            clock_s: A monotonic clock.
        """
        self.changes = changes or Changes()
        self._api = api
        self._resource = resource
        self._decode = decode
        self._namespace = namespace
        self._fields = field_selector
        self._labels = label_selector
        self._clock_s = clock_s
        self._random = Random()  # noqa: S311 - jitter keeps no secret
        self._records: Records[T] = Records(resource.plural, self.changes)
        self._resume = ""
        self._synced = False
        self._fresh_s = clock_s()
        self._failed_watches = 0
        self._counts: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._stopping = threading.Event()
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None

    # Reading: any thread.

    @property
    def synced(self) -> bool:
        """Whether the first list is in."""
        return self._synced

    @property
    def resource_version(self) -> str:
        """Up to where the server's history has been seen."""
        return self._resume

    @property
    def counts(self) -> Counts:
        """What happened so far, for metrics."""
        with self.changes.condition:
            broken = Counter(self._errors)
            broken["listener"] = self._records.listener_errors
            return Counts(**self._counts, errors={k: n for k, n in broken.items() if n})

    def age_s(self, now_s: float) -> float:
        """Seconds since the server was last heard of, on this reflector's clock."""
        return max(0.0, now_s - self._fresh_s)

    def records(self) -> tuple[T, ...]:
        """All records, in no order; the same tuple until something changes."""
        return self._records.all()

    def get(self, uid: str) -> T | None:
        """The record of one object."""
        return self._records.get(uid)

    def listen(self, listener: Callable[[T | None, T | None], None]) -> None:
        """Calls `listener(old, new)` for every change from now on, in the stream's order.

        First for every record there is, as (None, record). The call comes on the watch thread
        with the lock held: it must be short, must not raise, and must take no lock under which
        anybody asks for records.
        """
        self._records.listen(listener)

    # Running: owner's thread.

    def start(self) -> None:
        """Begins to list and watch; once only."""
        name = f"watch-{self._resource.plural}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it at once, even inside a blocked read."""
        self.request_stop()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def request_stop(self) -> None:
        """The first half of `stop`: does not wait."""
        self._stopping.set()
        stream = self._stream
        if stream is not None:
            stream.close()

    def follow_once(self) -> bool:
        """One list where needed, then one watch to its end; True if it failed.

        The thread calls it over and over; a caller with a loop of its own may do so instead.
        """
        try:
            if not self._resume:
                self._list()
            if not self._stopping.is_set():
                self._follow()
        except errors.KubeError as error:
            self._failed(error)
        except Exception:  # a watch thread that dies in silence serves old records for ever
            self._count_error("internal")
            log.exception("watch failed", extra={"resource": self._resource.plural})
            self._resume = ""
        else:
            self._failed_watches = 0
            return False
        return True

    # Following: watch thread.

    def _run(self) -> None:
        backoff = Backoff(self._random, longest_s=_LONGEST_PAUSE_S)
        while not self._stopping.is_set():
            begun_s, seen = self._clock_s(), self._counts["events"]
            failed = self.follow_once()
            # A busy API server ends watches whose small buffer is full, in the middle of a burst:
            # one that brought events is resumed at once, or we were blind when it matters most.
            healthy = self._clock_s() - begun_s >= HEALTHY_S or self._counts["events"] > seen
            if healthy:
                backoff.reset()
            if failed or not healthy:  # also where a server ends every watch at once
                self._stopping.wait(backoff.next_s())

    def _failed(self, error: errors.KubeError) -> None:
        if self._stopping.is_set():
            return
        self._count_error(error.kind)
        self._failed_watches += 1
        server_side = isinstance(error, errors.Unavailable | errors.TooManyRequests)
        if not server_side or self._failed_watches >= _RELIST_AFTER:
            self._resume = ""
            self._failed_watches = 0
        log.warning(
            "watch broken",
            extra={"resource": self._resource.plural, "kind": error.kind, "error": str(error)},
        )

    def _list(self) -> None:
        found: dict[str, T] = {}
        token = ""
        while True:
            asked = request.list_page(
                self._resource,
                self._namespace,
                token=token,
                field_selector=self._fields,
                label_selector=self._labels,
            )
            page = orjson.loads(self._api.send(asked))
            for item in page["items"] or ():
                record = self._read(item)
                if record is not None:
                    found[item["metadata"]["uid"]] = record
            token = page["metadata"].get("continue") or ""
            if not token:
                break
            if self._stopping.is_set():
                return
            time.sleep(0)  # let request threads have the GIL between two pages
        self._swap(found, page["metadata"]["resourceVersion"])

    def _swap(self, found: dict[str, T], resource_version: str) -> None:
        """Takes a whole list as the truth: what it lacks is gone, in one step for readers."""
        with self.changes.condition:
            self._records.swap(found)
            self._resume = resource_version
            self._counts["lists"] += 1
            self._fresh_s = self._clock_s()
            if not self._synced:
                self._synced = True
                self.changes.bump()

    def _follow(self) -> None:
        asked = request.watch(
            self._resource,
            self._namespace,
            resource_version=self._resume,
            timeout_s=self._random.randint(*_WATCH_S),
            field_selector=self._fields,
            label_selector=self._labels,
        )
        with self._api.stream(asked) as stream:
            self._counts["watches"] += 1
            self._stream = stream
            try:
                for line in stream:
                    if self._stopping.is_set():
                        return
                    self._event(line, asked.line)
            finally:
                self._stream = None

    def _event(self, line: bytes, request_line: str) -> None:
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise errors.Unavailable("an event was cut off", request=request_line) from error
        obj = event["object"]
        if event["type"] == "ERROR":
            raise errors.from_status(obj, request_line)
        resource_version = obj["metadata"]["resourceVersion"]
        record = self._read(obj) if event["type"] in ("ADDED", "MODIFIED") else None
        with self.changes.condition:
            self._counts["events"] += 1
            self._fresh_s = self._clock_s()
            self._failed_watches = 0
            if event["type"] != "BOOKMARK" and not self._seen(resource_version):
                self._records.put(obj["metadata"]["uid"], record)
            self._resume = resource_version

    def _seen(self, resource_version: str) -> bool:
        """Whether an event is an old one over again; versions of one kind only grow."""
        if resource_version.isdecimal() and self._resume.isdecimal():
            return int(resource_version) <= int(self._resume)
        return resource_version == self._resume

    def _read(self, obj: Object) -> T | None:
        try:
            return self._decode(obj)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
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
