"""JSON Patch (RFC 6902) as the API server expects it: missing parents first, names escaped.

Pure. Called by `policy.admission.mutation`.
"""

from collections.abc import Mapping, Sequence

Operation = Mapping[str, object]
"""One operation, ready for JSON."""


class Patch:
    """A list of operations on one document; missing parents are created first, once."""

    def __init__(self, document: Mapping[str, object]) -> None:
        self._document = document
        self._created: set[tuple[str | int, ...]] = set()
        self._operations: list[Operation] = []

    def put(self, path: tuple[str | int, ...], value: object) -> None:
        """Sets `path` to `value`; adds no operation where it has that value already."""
        for depth in range(1, len(path)):
            parent = path[:depth]
            container_type = list if isinstance(path[depth], int) else Mapping
            if parent not in self._created and not isinstance(self._at(parent), container_type):
                self._created.add(parent)
                self._add(parent, {})
        if self._at(path) != value or type(self._at(path)) is not type(value):
            self._add(path, value)

    def push(self, path: tuple[str | int, ...], value: object, *, first: bool = False) -> None:
        """Adds `value` to the list at `path`, at its end or first; a missing list is created."""
        if path not in self._created and not isinstance(self._at(path), list):
            self._created.add(path)
            self._add(path, [])
        self._add((*path, 0 if first else "-"), value)

    def drop(self, path: tuple[str | int, ...]) -> None:
        """Removes `path`, which must exist."""
        self._operations.append({"op": "remove", "path": _pointer(path)})

    def operations(self) -> tuple[Operation, ...]:
        """All operations, in order."""
        return tuple(self._operations)

    def _add(self, path: tuple[str | int, ...], value: object) -> None:
        # "add" on a member of an object sets it, whether it exists or not.
        self._operations.append({"op": "add", "path": _pointer(path), "value": value})

    def _at(self, path: tuple[str | int, ...]) -> object:
        """The value at `path` in the original document; None where there is none."""
        node: object = self._document
        for part in path:
            if isinstance(node, Mapping) and isinstance(part, str):
                node = node.get(part)
            elif isinstance(node, list) and isinstance(part, int) and part < len(node):
                node = node[part]
            else:
                return None
        return node


def _pointer(path: Sequence[str | int]) -> str:
    """RFC 6901: `~` and `/` inside a part are escaped."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)
