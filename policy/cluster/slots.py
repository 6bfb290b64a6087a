"""How many pods of one shape the cluster could run if all surplus and all leaving pods were gone.

A plan asks this before it looks for places: for a minimum that cannot start it reserves nothing. The
counts are kept between plans; one more costs a division for each node that changed since
(docs/decisions/0029).
"""

from collections.abc import Callable, Iterable

from policy.cluster import amounts
from policy.cluster.node_changes import NodeChangeLog
from policy.cluster.snapshot import Resources


class Slots:
    """The number of pods of one shape for which each node has enough."""

    def __init__(self, requests: Resources) -> None:
        """Counts nothing yet; `requests` is what one pod requests."""
        self._requests = requests
        self._position = -1
        self.counts: dict[str, int] = {}
        """Node -> pods that fit there; nodes without any are missing."""
        self.total = 0
        """The sum of `counts`."""

    def refresh(
        self, names: set[str], changes: NodeChangeLog, room: Callable[[str], Resources]
    ) -> None:
        """Counts the nodes that changed since the last call.

        Args:
            names: The nodes that such a pod may use.
            changes: The changes of nodes.
            room: What a node of `names` has free at most.
        """
        changed = changes.since(self._position)
        self._position = changes.end
        if changed is None:
            self.counts.clear()
            self.total = 0
            changed = names
        for name in changed:
            self.total -= self.counts.pop(name, 0)
            count = amounts.times(self._requests, room(name)) if name in names else 0
            if count:
                self.counts[name] = count
                self.total += count

    def total_with(self, changed: Iterable[str], room: Callable[[str], Resources | None]) -> int:
        """The sum of the counts if some nodes had other amounts free.

        Args:
            changed: These nodes, each once.
            room: What such a node has free; None for a node that such a pod may not use.
        """
        total = self.total
        for name in changed:
            free = room(name)
            total -= self.counts.get(name, 0)
            total += amounts.times(self._requests, free) if free is not None else 0
        return total
