"""Which server holds what: a function of names, shapes and the number of servers alone. Pure.

A dense parameter of many numbers is cut into as many even pieces as there are servers; a small one
is whole at the server that a hash of its name says. Rows of tables are at id modulo servers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from edl.errors import DataError

CUT = 8192
"""Numbers from which on a parameter is cut."""


class Piece(NamedTuple):
    """Numbers [start, stop) of a parameter, seen flat."""

    name: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many."""
        return self.stop - self.start


def pieces(sizes: Mapping[str, int], servers: int) -> list[list[Piece]]:
    """For each server the pieces it holds, in order."""
    found: list[list[Piece]] = [[] for _ in range(servers)]
    for name, size in sorted(sizes.items()):
        first = crc32(name.encode()) % servers
        parts = servers if size >= CUT else 1
        for part in range(parts):
            piece = Piece(name, size * part // parts, size * (part + 1) // parts)
            found[(first + part) % servers].append(piece)
    return found


class Layout:
    """Dense parameters of known shapes, to and from one vector for each server."""

    def __init__(
        self, shapes: Mapping[str, Sequence[int]], held: Sequence[Sequence[Piece]]
    ) -> None:
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self.pieces = [list(one) for one in held]
        self.sizes = [sum(piece.size for piece in one) for one in held]

    def pack(self, dense: Mapping[str, Any], what: str) -> list[Any]:
        """A vector of float32 for each server; what is missing is zero.

        Args:
            dense: By name.
            what: What it is, for the text.

        Raises:
            DataError: An array has another name, shape or kind than it should have.
        """
        flat = {name: self._flat(name, array, what) for name, array in dense.items()}
        found = []
        for server, size in enumerate(self.sizes):
            vector = np.zeros(size, np.float32)
            for piece, place in self._places(server):
                if piece.name in flat:
                    vector[place] = flat[piece.name][piece.start : piece.stop]
            found.append(vector)
        return found

    def empty(self) -> dict[str, Any]:
        """Arrays to unpack into."""
        return {name: np.zeros(shape, np.float32) for name, shape in self.shapes.items()}

    def unpack(self, server: int, vector: Any, into: Mapping[str, Any]) -> None:
        """Writes what a server sent to where it belongs."""
        for piece, place in self._places(server):
            into[piece.name].reshape(-1)[piece.start : piece.stop] = vector[place]

    def name_of(self, server: int, place: int) -> str:
        """Which parameter a number of a server's vector belongs to."""
        return next(piece.name for piece, where in self._places(server) if place < where.stop)

    def _places(self, server: int) -> Iterator[tuple[Piece, slice]]:
        at = 0
        for piece in self.pieces[server]:
            yield piece, slice(at, at + piece.size)
            at += piece.size

    def _flat(self, name: str, given: Any, what: str) -> Any:
        array = np.asarray(given)
        if name not in self.shapes:
            known = ", ".join(sorted(self.shapes))
            raise DataError(f"{what}: there is no parameter {name!r}; there are {known:.300}")
        if array.shape != self.shapes[name]:
            raise DataError(
                f"{what}: {name!r} has shape {list(array.shape)} and should have "
                f"{list(self.shapes[name])}"
            )
        if not np.issubdtype(array.dtype, np.floating):
            raise DataError(f"{what}: {name!r} is {array.dtype}: parameters are floating point")
        with np.errstate(over="ignore"):  # what overflows is found as infinite
            return np.ascontiguousarray(array, dtype=np.float32).reshape(-1)


def split(ids: Any, servers: int) -> list[Any]:
    """For each server the places in `ids` that are its own, in their order."""
    if servers == 1:
        return [np.arange(len(ids))]
    owner = ids % servers
    return [np.flatnonzero(owner == server) for server in range(servers)]
