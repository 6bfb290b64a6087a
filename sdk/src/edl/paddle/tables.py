"""Embeddings whose rows are at parameter servers: a batch looks up those that it needs.

Every `paddle.nn.Embedding(sparse=True)` becomes one: its weight is dropped, and its forward pass
reads rows by their ids. Their gradients are collected after the backward pass.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle
from paddle.nn import functional

from edl.model.errors import ModelError
from edl.servers.worker import Table

Lookup = Callable[[str, Any], Any]
_DIGITS = 3
"""Of a range: sums over large weights differ in the last digits from machine to machine."""
_CHUNK_ROWS = 1 << 14


class Rows:
    """One layer's table."""

    def __init__(self, name: str, layer: Any, seed: int) -> None:
        self.name = name or "embedding"
        self.weight = f"{name}.weight" if name else "weight"
        """How the layer's own state names it."""
        self._ids, self._dim = (int(size) for size in layer.weight.shape)
        self._padding = layer._padding_idx  # noqa: SLF001 - no public name says it
        self.table = Table(self._dim, _range(layer.weight), zlib.crc32(name.encode()) ^ seed)
        self._used: list[tuple[Any, Any]] = []
        """Unique ids and their rows as a leaf tensor, of each forward pass of this batch."""
        self.lookup: Lookup | None = None
        del layer.weight
        layer.forward = self._forward

    def _forward(self, ids: Any) -> Any:
        """As `paddle.nn.Embedding.forward`."""
        if self.lookup is None:
            raise ModelError(f"rows of {self.name!r} are at parameter servers: no lookup was given")
        found = ids.numpy()
        unique, places = np.unique(found.reshape(-1).astype(np.int64), return_inverse=True)
        if len(unique) and not 0 <= unique[0] <= unique[-1] < self._ids:
            wrong = unique[0] if unique[0] < 0 else unique[-1]
            raise ModelError(f"id {wrong} is none of {self.name!r}: it has {self._ids} ids from 0")
        rows = paddle.to_tensor(self.lookup(self.name, unique), "float32", stop_gradient=False)
        self._used.append((unique, rows))
        padding = np.flatnonzero(unique == self._padding)
        return functional.embedding(
            paddle.to_tensor(places.reshape(found.shape)),
            rows,
            padding_idx=int(padding[0]) if len(padding) else None,
        )

    def forget(self) -> None:
        """A new batch begins, or an evaluation is over."""
        self._used.clear()

    def gradient(self) -> tuple[Any, Any] | None:
        """Unique ids, and a gradient for each; None where the batch used none."""
        used = [(ids, rows.grad.numpy()) for ids, rows in self._used if rows.grad is not None]
        self.forget()
        if len(used) < 2:  # noqa: PLR2004 - nothing to add up
            return used[0] if used else None
        unique, places = np.unique(np.concatenate([ids for ids, _ in used]), return_inverse=True)
        summed = np.zeros((len(unique), self._dim), np.float32)
        np.add.at(summed, places, np.concatenate([rows for _, rows in used]))
        return unique, summed

    def whole(self, lookup: Lookup) -> Any:
        """All rows."""
        return np.concatenate(
            [
                lookup(self.name, np.arange(start, min(start + _CHUNK_ROWS, self._ids)))
                for start in range(0, self._ids, _CHUNK_ROWS)
            ]
        )


def sparse(layer: Any) -> Iterator[tuple[str, Any]]:
    """Embeddings with sparse gradients, and their names.

    Raises:
        ModelError: Two share their weight.
    """
    seen: dict[int, str] = {}
    for name, part in layer.named_sublayers(include_self=True):
        if not isinstance(part, paddle.nn.Embedding) or part.weight.stop_gradient:
            continue
        if part._sparse:  # noqa: SLF001 - no public name says it
            other = seen.setdefault(id(part.weight), name)
            if other != name:
                raise ModelError(
                    f"{other!r} and {name!r} share their weight: at parameter servers they would "
                    "be two tables; use one layer twice, or sparse=False"
                )
            yield name, part


def _range(weight: Any) -> float:
    """Rows begin uniformly between plus and minus this: as spread as the layer's own begin."""
    limit = float(weight.numpy().std()) * 3**0.5
    return float(f"{limit:.{_DIGITS}g}")
