"""How many pods of one shape the cluster could run if all surplus trainers and leaving pods were gone.

A plan checks this before it looks for nodes: it reserves nothing for a minimum that cannot start. The
counts are kept between plans, so that another plan costs one division for each node that has changed
(docs/decisions/0029).
"""

from collections.abc import Callable, Iterable

from policy.cluster import amounts
from policy.cluster.node_changes import NodeChangeLog
from policy.cluster.snapshot import Resources


class Slots:
    """The number of pods of one shape that fit on each node."""

    def __init__(self, requests: Resources) -> None:
        """Takes the requests of one pod; the counts start empty, and `refresh` fills them."""
        self._requests = requests
        self._position = -1
        self.counts: dict[str, int] = {}
        """Node -> number of pods that fit there; nodes where none fits are missing."""
        self.total = 0
        """The sum of `counts`."""

    def refresh(
        self, names: set[str], changes: NodeChangeLog, room: Callable[[str], Resources]
    ) -> None:
        """Counts the nodes that changed since the last call.

        Args:
            names: The nodes that such a pod may use.
            changes: The changes of nodes.
            room: Returns the largest amounts that may become free on a node of `names`.
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
        """Returns the sum of the counts if some nodes had other free amounts.

        Args:
            changed: The nodes with other free amounts, each once.
            room: Returns the free amounts of such a node; None if such a pod may not use the node.
        """
        total = self.total
        for name in changed:
            free = room(name)
            total -= self.counts.get(name, 0)
            total += amounts.times(self._requests, free) if free is not None else 0
        return total
