"""Event streams (text/event-stream, HTML standard 9.2), limited in number and duration.

A reader's state is one number: the version up to which it has seen the cluster. The changes since then are
computed when they are sent, so nothing is queued. A slow reader skips intermediate states, and a reader that
does not read at all is dropped by the server's time limit for a response.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from page.cluster_view import ClusterView
from page.sections import Subscription, events

CONTENT_TYPE = "text/event-stream; charset=utf-8"
_PACE_S = 0.25
"""Interval of checks for changes."""
_KEEP_ALIVE_S = 10.0
_SERVICE_ACCOUNT = "system:serviceaccount:"
_NAMESPACE_SHARE = 4
"""The service accounts of a namespace share a fourth of all streams, because the namespace's tenant can create any
number of them."""
RETRY_S = 5


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """Limits on the number of streams and on their duration."""

    total: int
    per_caller: int
    length_s: float


class Streams:
    """The open streams of this process. They start and end on the server's event loop; `count` is thread-safe."""

    def __init__(
        self,
        view: ClusterView,
        bounds: StreamBounds,
        clock_s: Callable[[], float],
        is_closing: Callable[[], bool],
    ) -> None:
        """Initializes the streams.

        Args:
            view: The view of the cluster.
            bounds: Limits of all streams.
            clock_s: A monotonic clock.
            is_closing: Returns whether the process is about to exit, so that streams end.
        """
        self._view = view
        self._bounds = bounds
        self._clock_s = clock_s
        self._is_closing = is_closing
        self._callers: Counter[str] = Counter()
        self._tenants: Counter[str] = Counter()
        """Number of open streams by tenant, which is the namespace of a service account, or another user."""
        self._boot = secrets.token_hex(4)
        self.events = 0
        """Number of events sent since the start."""

    @property
    def count(self) -> int:
        """Number of open streams."""
        return self._callers.total()

    def refusal(self, user: str) -> str:
        """Returns why a user gets no further stream, `full` or `caller`; "" if the user may open one.

        Concurrent requests may each see the last free stream, so the limit can be exceeded by a few.
        """
        bounds = self._bounds
        per_tenant = max(bounds.per_caller, bounds.total // _NAMESPACE_SHARE)
        if self._callers[user] >= bounds.per_caller or self._tenants[_tenant(user)] >= per_tenant:
            return "caller"
        return "full" if self.count >= bounds.total else ""

    def position(self, subscription: Subscription, last_id: str) -> int | None:
        """Returns the version after which a reader continues, or None if it has to start over."""
        boot, _, rest = last_id.partition(".")
        fingerprint, _, version = rest.partition(".")
        is_ours = (boot, fingerprint) == (self._boot, subscription.fingerprint)
        if not (is_ours and version.isdecimal()) or int(version[:18]) > self._view.version:
            return None
        return int(version)

    async def follow(
        self, subscription: Subscription, position: int | None
    ) -> AsyncGenerator[bytes]:
        """Yields the parts of one stream, until its time is up or the process exits."""
        user = subscription.access.user
        self._callers[user] += 1
        self._tenants[_tenant(user)] += 1
        try:
            async for part in self._parts(subscription, position):
                yield part
        finally:
            _release(self._callers, user)
            _release(self._tenants, _tenant(user))

    async def _parts(
        self, subscription: Subscription, position: int | None
    ) -> AsyncGenerator[bytes]:
        started_s = sent_s = self._clock_s()
        while not self._is_closing():
            version = self._view.version
            if version != position:
                lines = await asyncio.to_thread(events, self._view, subscription, position)
                position = version
                if lines:
                    ident = f"id: {self._boot}.{subscription.fingerprint}.{version}\n\n"
                    self.events += len(lines)
                    sent_s = self._clock_s()
                    yield b"\n".join(lines) + ident.encode()
            now_s = self._clock_s()
            if now_s - started_s >= self._bounds.length_s:
                return
            if now_s - sent_s >= _KEEP_ALIVE_S:
                sent_s = now_s
                yield b": keep-alive\n\n"
            await asyncio.sleep(_PACE_S)


def _tenant(user: str) -> str:
    """Returns the tenant of a user; a service account belongs to the tenant of its namespace."""
    if not user.startswith(_SERVICE_ACCOUNT):
        return user
    return user.rpartition(":")[0]


def _release(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
