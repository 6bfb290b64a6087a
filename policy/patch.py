"""JSON Patch (RFC 6902) as the API server takes it: missing parents first, names escaped.

Pure. Who calls: `policy.mutation`.
"""

from collections.abc import Mapping, Sequence

Operation = Mapping[str, object]
"""One operation, ready for JSON."""


class Patch:
    """Collects operations against one document; missing parents are made first, once."""

    def __init__(self, document: Mapping[str, object]) -> None:
        self._document = document
        self._made: set[tuple[str | int, ...]] = set()
        self._operations: list[Operation] = []

    def put(self, path: tuple[str | int, ...], value: object) -> None:
        """Makes `path` hold `value`; nothing if it does."""
        for depth in range(1, len(path)):
            parent = path[:depth]
            wanted = list if isinstance(path[depth], int) else Mapping
            if parent not in self._made and not isinstance(self._at(parent), wanted):
                self._made.add(parent)
                self._add(parent, {})
        if self._at(path) != value or type(self._at(path)) is not type(value):
            self._add(path, value)

    def push(self, path: tuple[str | int, ...], value: object, *, first: bool = False) -> None:
        """Adds `value` to the list at `path`, at its end or first; the list is made if missing."""
        if path not in self._made and not isinstance(self._at(path), list):
            self._made.add(path)
            self._add(path, [])
        self._add((*path, 0 if first else "-"), value)

    def drop(self, path: tuple[str | int, ...]) -> None:
        """Removes `path`, which must exist."""
        self._operations.append({"op": "remove", "path": _pointer(path)})

    def operations(self) -> tuple[Operation, ...]:
        """Everything collected, in order."""
        return tuple(self._operations)

    def _add(self, path: tuple[str | int, ...], value: object) -> None:
        # "add" on a member of an object sets it, whether it exists or not.
        self._operations.append({"op": "add", "path": _pointer(path), "value": value})

    def _at(self, path: tuple[str | int, ...]) -> object:
        """What the original document holds there; None for nothing."""
        here: object = self._document
        for part in path:
            if isinstance(here, Mapping) and isinstance(part, str):
                here = here.get(part)
            elif isinstance(here, list) and isinstance(part, int) and part < len(here):
                here = here[part]
            else:
                return None
        return here


def _pointer(path: Sequence[str | int]) -> str:
    """RFC 6901: `~` and `/` inside a part are escaped."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)
