"""A log of changed nodes, for readers that keep sums over all nodes and prices of all nodes up to date."""

from collections.abc import Iterable


class NodeChangeLog:
    """A bounded log of changed nodes, for readers that each keep their own read position."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        """Node -> position of its newest change; a removed node is missing."""
        self.end = 0
        self.replaced_at = 0
        """Position of the newest change of a node itself; changes of its pods do not count."""
        self._names: list[str] = []
        self._start = 0

    def add(self, node: str, *, exists: bool, replaced: bool = True) -> None:
        """Records that a node was added, changed or removed, or (not `replaced`) that its pods changed."""
        self._names.append(node)
        self.end += 1
        if replaced:
            self.replaced_at = self.end
        if exists:
            self.versions[node] = self.end
        else:
            self.versions.pop(node, None)
        if len(self._names) > 1000 + 2 * len(self.versions):
            retained = len(self._names) // 2
            self._start = self.end - retained
            self._names = self._names[-retained:]

    def since(self, position: int) -> Iterable[str] | None:
        """Returns the nodes that changed after `position`, each once; None if the log starts later."""
        if position < self._start:
            return None
        return dict.fromkeys(self._names[position - self._start :])
