"""Event streams (text/event-stream, HTML standard 9.2): bounded in number and length, each at its reader's pace.

A reader has one number, the version up to which it has seen the cluster; what has changed since is made when
it is sent. So nothing is queued for anybody: who reads slowly skips what was in between, and who does not read at
all is dropped by the server's limit for an answer.
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
"""Between two looks for changes."""
_KEEP_ALIVE_S = 10.0
_SERVICE_ACCOUNT = "system:serviceaccount:"
_NAMESPACE_SHARE = 4
"""Service accounts of one namespace together have a fourth of all streams: its tenant makes as many as it likes."""
RETRY_S = 5


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """Limits on the number of streams and on the duration of each."""

    total: int
    per_caller: int
    length_s: float


class Streams:
    """The open streams of this process; they begin and end on the server's loop, `count` is thread-safe."""

    def __init__(
        self,
        view: ClusterView,
        bounds: StreamBounds,
        clock_s: Callable[[], float],
        is_closing: Callable[[], bool],
    ) -> None:
        """Opens nothing.

        Args:
            view: What is sent.
            bounds: Of all streams together.
            clock_s: A monotonic clock.
            is_closing: Whether the process is about to end, so that streams end.
        """
        self._view = view
        self._bounds = bounds
        self._clock_s = clock_s
        self._is_closing = is_closing
        self._callers: Counter[str] = Counter()
        self._tenants: Counter[str] = Counter()
        """By namespace of service accounts; other users are tenants of their own."""
        self._boot = secrets.token_hex(4)
        self.events = 0
        """Events sent since the start."""

    @property
    def count(self) -> int:
        """Number of open streams."""
        return self._callers.total()

    def refusal(self, user: str) -> str:
        """Why a user gets no more streams: `full` or `caller`; "" where one may be opened.

        Requests that are answered at once may each see the last free one: a few more than the bound.
        """
        bounds = self._bounds
        per_tenant = max(bounds.per_caller, bounds.total // _NAMESPACE_SHARE)
        if self._callers[user] >= bounds.per_caller or self._tenants[_tenant(user)] >= per_tenant:
            return "caller"
        return "full" if self.count >= bounds.total else ""

    def position(self, subscription: Subscription, last_id: str) -> int | None:
        """The version after which a reader continues; None where it has to begin again."""
        boot, _, rest = last_id.partition(".")
        fingerprint, _, version = rest.partition(".")
        is_ours = (boot, fingerprint) == (self._boot, subscription.fingerprint)
        if not (is_ours and version.isdecimal()) or int(version[:18]) > self._view.version:
            return None
        return int(version)

    async def follow(
        self, subscription: Subscription, position: int | None
    ) -> AsyncGenerator[bytes]:
        """The parts of one stream, until its time is over or the process ends."""
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
        begun_s = sent_s = self._clock_s()
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
            if now_s - begun_s >= self._bounds.length_s:
                return
            if now_s - sent_s >= _KEEP_ALIVE_S:
                sent_s = now_s
                yield b": keep-alive\n\n"
            await asyncio.sleep(_PACE_S)


def _tenant(user: str) -> str:
    """Whose a user is: service accounts belong to the tenant of their namespace."""
    if not user.startswith(_SERVICE_ACCOUNT):
        return user
    return user.rpartition(":")[0]


def _release(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
