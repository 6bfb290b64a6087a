"""JSON Patch (RFC 6902) as the API server expects it: missing parents come first, names are escaped. Pure.

Mutations return changes, which are plain values; `operations` turns all changes to an object into a patch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Operation = Mapping[str, object]
"""One operation, ready for JSON."""
Path = tuple[str | int, ...]
"""The fields and positions that lead to a value in a document."""


@dataclass(frozen=True, slots=True)
class Put:
    """Sets `path` to `value`; missing parents are created."""

    path: Path
    value: object


@dataclass(frozen=True, slots=True)
class Push:
    """Adds `value` at the end or the beginning of the list at `path`; a missing list is created."""

    path: Path
    value: object
    first: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """Removes `path`, which must exist."""

    path: Path


Change = Put | Push | Drop


def operations(document: Mapping[str, object], changes: Iterable[Change]) -> tuple[Operation, ...]:
    """Returns the operations that make the changes, in order.

    A value that is already present gets no operation, so a patched document needs no operations.
    """
    result: list[Operation] = []
    created: set[Path] = set()

    def add(path: Path, value: object) -> None:
        # "add" sets a member of an object whether it exists or not.
        result.append({"op": "add", "path": _pointer(path), "value": value})

    def create(path: Path, empty: dict[str, object] | list[object]) -> None:
        if path not in created and not isinstance(_at(document, path), type(empty)):
            created.add(path)
            add(path, empty)

    for change in changes:
        if isinstance(change, Drop):
            result.append({"op": "remove", "path": _pointer(change.path)})
        elif isinstance(change, Push):
            create(change.path, [])
            add((*change.path, 0 if change.first else "-"), change.value)
        else:
            for depth in range(1, len(change.path)):
                create(change.path[:depth], [] if isinstance(change.path[depth], int) else {})
            current = _at(document, change.path)
            if current != change.value or type(current) is not type(change.value):
                add(change.path, change.value)
    return tuple(result)


def _at(document: object, path: Path) -> object:
    """Returns the value at `path`, or None if there is none."""
    node = document
    for part in path:
        if isinstance(node, Mapping) and isinstance(part, str):
            node = node.get(part)
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        else:
            return None
    return node


def _pointer(path: Path) -> str:
    """Returns the path as a JSON Pointer (RFC 6901): `~` and `/` inside a part are escaped."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)
