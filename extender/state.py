"""The extender's state: the cluster, promised capacity, and cool-downs of nodes.

kube-scheduler sends one request at a time, but requests of two schedulers may overlap. So every answer is
computed under one lock, from memory only. After a restart the watches rebuild the state. Only the promises
of the last few seconds are lost, which costs at most a few extra victims.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from extender.handlers import View
from kube.cache import ClusterCache
from kube.object_change import ObjectChange
from kube.state_feed import ClusterStateFeed
from policy.cluster.snapshot import Pod
from policy.document.model import Policy
from policy.planning.recent_history import CoolDowns
from policy.planning.victims import Candidate, Promise

PROMISE_S = 5.0
"""Lifetime of a promise; the pod must be bound within this time."""


class ExtenderState:
    """The state shared by request threads; all access is through `view`, under a lock."""

    def __init__(
        self,
        cache: ClusterCache,
        clock_s: Callable[[], float],
        epoch_s: Callable[[], float],
        policy: Callable[[], Policy],
    ) -> None:
        """Subscribes to `cache`.

        Args:
            cache: The watches.
            clock_s: A monotonic clock.
            epoch_s: Returns the seconds since the epoch.
            policy: Returns the active policy.
        """
        self._state_feed = ClusterStateFeed(cache, epoch_s)
        self._clock_s = clock_s
        self._policy = policy
        self._lock = threading.Lock()
        self._promises: dict[str, tuple[Promise, float]] = {}
        self._cool_downs = CoolDowns()

    @contextmanager
    def view(self) -> Iterator[View]:
        """Yields the current state, which does not change until the block ends."""
        with self._lock:
            now_s = self._clock_s()
            self._state_feed.follow(self._policy())
            pods, _ = self._state_feed.drain()
            self._expire(pods, now_s)
            promises = tuple(promise for promise, _ in self._promises.values())
            cooling = self._cool_downs.cooling(now_s)
            yield View(self._state_feed.cluster, promises, cooling, now_s)

    def promise(self, pod: Pod, candidate: Candidate, now_s: float) -> None:
        """Promises capacity of a node to `pod`; the victims count as gone. Only allowed inside `view`."""
        promise = Promise(
            pod.uid, candidate.node, pod.requests, pod.priority, frozenset(candidate.uids)
        )
        self._promises[pod.uid] = (promise, now_s + PROMISE_S)
        self._cool_downs.start(candidate.node, now_s, self._policy().stability.cool_down_seconds)

    def _expire(self, changes: Mapping[str, ObjectChange[Pod]], now_s: float) -> None:
        """Removes promises that have timed out, or whose pod was bound, nominated elsewhere or deleted."""
        for uid, change in changes.items():
            promise, _ = self._promises.get(uid, (None, 0.0))
            nominated = change.new.nominated if change.new is not None else ""
            elsewhere = promise is not None and nominated not in ("", promise.node)
            if change.new is None or change.new.node or elsewhere:
                self._promises.pop(uid, None)
        for uid in [uid for uid, (_, until) in self._promises.items() if until <= now_s]:
            del self._promises[uid]
