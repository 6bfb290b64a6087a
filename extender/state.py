"""What the extender knows: the index, the room it has promised, the nodes that cool down.

kube-scheduler asks one thing at a time, but two schedulers may overlap, so every answer is
made under one lock, from memory alone. Everything is rebuilt from watches after a restart;
only promises of the last seconds are lost, which costs at most a few extra victims.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from kube.cache import ClusterCache
from kube.live import Change, LiveIndex
from policy.index import Index
from policy.snapshot import Pod
from policy.victims import Candidate, Promise

PROMISE_S = 5.0
"""How long a promise stands before the pod it was given to must have shown up."""


@dataclass(frozen=True, slots=True)
class View:
    """What one answer is made from; only valid while it is held."""

    index: Index
    promises: tuple[Promise, ...]
    cooling: Mapping[str, float]
    now_s: float


class State:
    """Shared by the request threads."""

    def __init__(
        self, cache: ClusterCache, clock_s: Callable[[], float], cool_down_s: Callable[[], float]
    ) -> None:
        """Listens to `cache`.

        Args:
            cache: The watches.
            clock_s: Monotonic.
            cool_down_s: The policy's cool-down, asked anew each time.
        """
        self._live = LiveIndex(cache)
        self._clock_s = clock_s
        self._cool_down_s = cool_down_s
        self._lock = threading.Lock()
        self._promises: dict[str, tuple[Promise, float]] = {}
        self._cooling: dict[str, float] = {}

    @contextmanager
    def view(self) -> Iterator[View]:
        """The cluster as of now, held still until the block ends."""
        with self._lock:
            now_s = self._clock_s()
            pods, _ = self._live.drain()
            self._settle(pods, now_s)
            promises = tuple(promise for promise, _ in self._promises.values())
            yield View(self._live.index, promises, self._cooling, now_s)

    def promise(self, pod: Pod, chosen: Candidate, now_s: float) -> None:
        """Room on a node goes to `pod`; its victims are as good as gone. Inside `view` only."""
        promise = Promise(pod.uid, chosen.node, pod.requests, pod.priority, frozenset(chosen.uids))
        self._promises[pod.uid] = (promise, now_s + PROMISE_S)
        self._cooling[chosen.node] = now_s + self._cool_down_s()

    def _settle(self, changes: Mapping[str, Change[Pod]], now_s: float) -> None:
        """Promises end when their pod is bound or gone, or too long after."""
        for uid in self._ended(changes):
            self._promises.pop(uid, None)
        for uid in [uid for uid, (_, until) in self._promises.items() if until <= now_s]:
            del self._promises[uid]
        for node in [node for node, until in self._cooling.items() if until <= now_s]:
            del self._cooling[node]

    @staticmethod
    def _ended(changes: Mapping[str, Change[Pod]]) -> Iterable[str]:
        return (uid for uid, change in changes.items() if change.new is None or change.new.node)
