"""What we did and the watch has not shown yet, laid over the index until it has.

Without it a plan made between a write and its event would do the same again. All of it is in
memory: after a restart the first list shows everything that was done.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from kube.live import Change
from policy.index import Index
from policy.snapshot import Pod

PATIENCE_S = 10.0
"""An event that is this late will not come: the write was undone by somebody."""
_MOST = 20_000


class Expectations:
    """Trainers that were made or let go a moment ago."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Pod, float]] = {}
        self._released: OrderedDict[str, float] = OrderedDict()
        self._assumed: set[str] = set()
        """Pods that we let go and that the watch has never shown leaving."""
        self._gone: OrderedDict[str, None] = OrderedDict()

    def made(self, index: Index, pod: Pod, now_s: float) -> None:
        """A pod was created; the index has it from now on, unless it is gone already."""
        if pod.uid not in self._gone and pod.uid not in index.pods:
            self._made[pod.uid] = (pod, now_s + PATIENCE_S)
            index.put_pod(pod)

    def released(self, index: Index, uid: str, now_s: float) -> None:
        """A pod was evicted; the index has it as leaving from now on."""
        self._released[uid] = now_s + PATIENCE_S
        _bound(self._released)
        pod = index.pods.get(uid)
        if pod is not None and not pod.deleting:
            self._assumed.add(uid)
            index.put_pod(replace(pod, deleting=True))

    def kept(self, index: Index, uid: str) -> None:
        """The eviction was refused: the pod stays, unless somebody else has deleted it."""
        self._released.pop(uid, None)
        pod = index.pods.get(uid)
        if pod is not None and uid in self._assumed:
            index.put_pod(replace(pod, deleting=False))

    def was_released(self, uid: str) -> bool:
        """Whether it was us who let a pod go (as far as this process remembers)."""
        return uid in self._released

    @property
    def released_uids(self) -> Iterable[str]:
        """Pods that we let go; the newest 20 000."""
        return self._released.keys()

    def settle(self, index: Index, changes: Mapping[str, Change[Pod]], now_s: float) -> None:
        """Lays what is still expected over an index that just took in `changes`."""
        for uid, change in changes.items():
            self._made.pop(uid, None)
            if change.new is None or change.new.deleting:
                self._assumed.discard(uid)
            if change.new is None:
                self._gone[uid] = None
                _bound(self._gone)
            elif not change.new.deleting and self._released.get(uid, 0.0) > now_s:
                self._assumed.add(uid)
                index.put_pod(replace(change.new, deleting=True))
        for uid, (_, until_s) in tuple(self._made.items()):
            if until_s <= now_s:
                del self._made[uid]
                index.drop_pod(uid)


def _bound(entries: "OrderedDict[str, float] | OrderedDict[str, None]") -> None:
    while len(entries) > _MOST:
        entries.popitem(last=False)
