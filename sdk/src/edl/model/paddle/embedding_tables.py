"""Embeddings whose rows are stored at parameter servers.

Every `paddle.nn.Embedding(sparse=True)` becomes a table: its weight is deleted, and its forward
pass looks up rows by id. The rows' gradients are collected after the backward pass.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle
from paddle.nn import functional

from edl.model.errors import ModelError
from edl_protocol.pserver import Table

Lookup = Callable[[str, Any], Any]
_DIGITS = 3
"""Significant digits of an initial range; sums over large weights may differ in later digits."""
_CHUNK_ROWS = 1 << 14


class EmbeddingTable:
    """The table of one embedding layer."""

    def __init__(self, name: str, layer: Any, seed: int) -> None:
        self.name = name or "embedding"
        self.weight = f"{name}.weight" if name else "weight"
        """Name of the weight in the layer's state."""
        self._ids, self._dim = (int(size) for size in layer.weight.shape)
        self._padding = layer._padding_idx  # noqa: SLF001 - PaddlePaddle has no public name for it
        self.table = Table(self._dim, _init_range(layer.weight), zlib.crc32(name.encode()) ^ seed)
        self._used: list[tuple[Any, Any]] = []
        """For each forward pass of this batch: unique ids, and their rows as a leaf tensor."""
        self.lookup: Lookup | None = None
        del layer.weight
        layer.forward = self._forward

    def _forward(self, ids: Any) -> Any:
        """Replaces `paddle.nn.Embedding.forward`."""
        if self.lookup is None:
            raise ModelError(
                f"the rows of {self.name!r} are on parameter servers: pass a lookup to read them"
            )
        id_array = ids.numpy()
        unique, places = np.unique(id_array.reshape(-1).astype(np.int64), return_inverse=True)
        if len(unique) and not 0 <= unique[0] <= unique[-1] < self._ids:
            wrong = unique[0] if unique[0] < 0 else unique[-1]
            raise ModelError(
                f"id {wrong} is not in {self.name!r}, which has the ids 0 to {self._ids - 1}"
            )
        rows = paddle.to_tensor(self.lookup(self.name, unique), "float32", stop_gradient=False)
        self._used.append((unique, rows))
        padding = np.flatnonzero(unique == self._padding)
        return functional.embedding(
            paddle.to_tensor(places.reshape(id_array.shape)),
            rows,
            padding_idx=int(padding[0]) if len(padding) else None,
        )

    def clear(self) -> None:
        """Discards the rows of the previous batch or evaluation."""
        self._used.clear()

    def gradient(self) -> tuple[Any, Any] | None:
        """Returns unique ids and one gradient per id; None if the batch used no rows."""
        gradients = [(ids, rows.grad.numpy()) for ids, rows in self._used if rows.grad is not None]
        self.clear()
        if len(gradients) < 2:  # noqa: PLR2004 - only two or more need a sum
            return gradients[0] if gradients else None
        unique, places = np.unique(
            np.concatenate([ids for ids, _ in gradients]), return_inverse=True
        )
        sums = np.zeros((len(unique), self._dim), np.float32)
        np.add.at(sums, places, np.concatenate([rows for _, rows in gradients]))
        return unique, sums

    def all_rows(self, lookup: Lookup) -> Any:
        """Looks up all rows."""
        return np.concatenate(
            [
                lookup(self.name, np.arange(start, min(start + _CHUNK_ROWS, self._ids)))
                for start in range(0, self._ids, _CHUNK_ROWS)
            ]
        )


def sparse_embeddings(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yields the name and the layer of each embedding with sparse gradients.

    Raises:
        ModelError: Two embeddings share their weight.
    """
    names_by_weight: dict[int, str] = {}
    for name, part in layer.named_sublayers(include_self=True):
        if not isinstance(part, paddle.nn.Embedding) or part.weight.stop_gradient:
            continue
        if part._sparse:  # noqa: SLF001 - PaddlePaddle has no public name for it
            other = names_by_weight.setdefault(id(part.weight), name)
            if other != name:
                raise ModelError(
                    f"{other!r} and {name!r} share their weight: at parameter servers they would "
                    "be two tables; use one layer twice, or sparse=False"
                )
            yield name, part


def _init_range(weight: Any) -> float:
    """Returns the bound of uniformly drawn initial rows that have the same spread as the layer's weight."""
    limit = float(weight.numpy().std()) * 3**0.5
    return float(f"{limit:.{_DIGITS}g}")
