"""Assigns parameters to servers, by their names and shapes and the number of servers. Pure.

A large dense parameter is split evenly across all servers; a small one is stored whole on the server
that a hash of its name selects. A table row is stored on server `id % servers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from edl.errors import DataError
from edl_protocol.pserver import Piece

CUT = 8192
"""Parameters with at least this many elements are split."""


def partition(sizes: Mapping[str, int], servers: int) -> list[list[Piece]]:
    """Returns the slices that each server holds, in order."""
    pieces_by_server: list[list[Piece]] = [[] for _ in range(servers)]
    for name, size in sorted(sizes.items()):
        first = crc32(name.encode()) % servers
        parts = servers if size >= CUT else 1
        for part in range(parts):
            piece = Piece(name, size * part // parts, size * (part + 1) // parts)
            pieces_by_server[(first + part) % servers].append(piece)
    return pieces_by_server


class Layout:
    """Converts dense parameters to and from one flat vector per server."""

    def __init__(
        self,
        shapes: Mapping[str, Sequence[int]],
        pieces_by_server: Sequence[Sequence[Piece]],
    ) -> None:
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self.pieces = [list(server_pieces) for server_pieces in pieces_by_server]
        self.sizes = [
            sum(piece.size for piece in server_pieces) for server_pieces in pieces_by_server
        ]

    def pack(self, dense: Mapping[str, Any], role: str) -> list[Any]:
        """Returns a float32 vector for each server; missing parameters are zeros.

        Args:
            dense: Name -> array.
            role: Name for the arrays in error messages, such as "gradients".

        Raises:
            DataError: An array has an unexpected name, shape or type.
        """
        flat = {name: self._flat(name, array, role) for name, array in dense.items()}
        vectors = []
        for server, size in enumerate(self.sizes):
            vector = np.zeros(size, np.float32)
            for piece, place in self._places(server):
                if piece.name in flat:
                    vector[place] = flat[piece.name][piece.start : piece.stop]
            vectors.append(vector)
        return vectors

    def empty(self) -> dict[str, Any]:
        """Returns arrays of zeros to unpack into."""
        return {name: np.zeros(shape, np.float32) for name, shape in self.shapes.items()}

    def unpack(self, server: int, vector: Any, into: Mapping[str, Any]) -> None:
        """Copies the vector of one server into the arrays."""
        for piece, place in self._places(server):
            into[piece.name].reshape(-1)[piece.start : piece.stop] = vector[place]

    def parameter_at(self, server: int, position: int) -> str:
        """Returns the name of the parameter at a position of a server's vector."""
        return next(
            piece.name for piece, numbers in self._places(server) if position < numbers.stop
        )

    def _places(self, server: int) -> Iterator[tuple[Piece, slice]]:
        at = 0
        for piece in self.pieces[server]:
            yield piece, slice(at, at + piece.size)
            at += piece.size

    def _flat(self, name: str, values: Any, role: str) -> Any:
        array = np.asarray(values)
        if name not in self.shapes:
            names = ", ".join(sorted(self.shapes))
            raise DataError(f"{role}: unknown parameter {name!r}; parameters are: {names:.300}")
        if array.shape != self.shapes[name]:
            raise DataError(
                f"{role}: {name!r} has shape {list(array.shape)} instead of {list(self.shapes[name])}"
            )
        if not np.issubdtype(array.dtype, np.floating):
            raise DataError(f"{role}: {name!r} is {array.dtype}: parameters must be floating point")
        with np.errstate(over="ignore"):  # an overflow becomes infinity, which is checked later
            return np.ascontiguousarray(array, dtype=np.float32).reshape(-1)


def split(ids: Any, servers: int) -> list[Any]:
    """Returns, for each server, the positions of its ids in `ids`, in order."""
    if servers == 1:
        return [np.arange(len(ids))]
    owner = ids % servers
    return [np.flatnonzero(owner == server) for server in range(servers)]
