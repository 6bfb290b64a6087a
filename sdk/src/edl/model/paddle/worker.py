"""Asynchronous training of a PaddlePaddle model, whose gradients go to parameter servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from edl.model.errors import ModelError
from edl.model.paddle.embedding_tables import EmbeddingTable, Lookup, sparse_embeddings
from edl.model.paddle.network import Network, set_tensors
from edl.model.paddle.running_statistics import running_tensors
from edl.model.paddle.server_optimizers import to_server_optimizer
from edl.model.seeding import build_model
from edl.model.user_code import SMALLER_BATCH, UserCode
from edl.overriding import override
from edl.servers.worker import Gradients, Worker
from edl_protocol.pserver import Table

T = TypeVar("T")


class PaddleWorker(Network, Worker):
    """A `Worker` whose `paddle.nn.Embedding(sparse=True)` layers are tables on the servers."""

    def __init__(self, layer: Any, user_code: UserCode, seed: int) -> None:
        self._embeddings = [
            EmbeddingTable(name, part, seed) for name, part in sparse_embeddings(layer)
        ]
        names = [table.name for table in self._embeddings]
        self._row_options = user_code.table_options(names)
        self._seed = seed
        self._batches = 0
        user_code.memory_advice = SMALLER_BATCH
        super().__init__(layer, user_code)
        if running_tensors(layer):
            raise ModelError(
                f"model() of {user_code.model.path} keeps running statistics (batch normalization, or "
                "buffers that are saved), which parameter servers do not have: use LayerNorm or "
                "GroupNorm, or train with --sync"
            )
        self._optimizer = to_server_optimizer(
            user_code.call_function("optimizer", layer.parameters()), user_code.model.path
        )
        self._dense = dict(zip(self.names, self.trained))

    @override
    def initial(self) -> dict[str, Any]:
        return {name: parameter.numpy() for name, parameter in self._dense.items()}

    @override
    def tables(self) -> dict[str, Table]:
        return {
            table.name: replace(table.table, **self._row_options.get(table.name, {}))
            for table in self._embeddings
        }

    @override
    def optimizer(self) -> dict[str, Any]:
        return self._optimizer

    @override
    def load(self, dense: Mapping[str, Any]) -> None:
        set_tensors(self._dense, dense, "the servers' model")

    @override
    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        self._batches += 1
        self._user_code.set_context(f"its batch {self._batches}", records)
        loss = self._with_lookup(lookup, lambda: self.loss(records), keep=True)
        self._user_code.call("the gradient", loss.backward)
        dense = {}
        for name, parameter in self._dense.items():
            if parameter.grad is not None:
                dense[name] = parameter.grad.numpy()
                parameter.clear_gradient(False)
        rows = {table.name: table.gradient() for table in self._embeddings}
        row_gradients = {name: gradient for name, gradient in rows.items() if gradient is not None}
        return Gradients(dense, row_gradients, {"loss": loss.item()})

    @override
    def evaluate(self, records: Any, lookup: Lookup | None = None) -> dict[str, float]:
        return self._with_lookup(lookup, lambda: super(PaddleWorker, self).evaluate(records))

    @override
    def predict(self, records: Any, lookup: Lookup | None = None) -> dict[str, Any]:
        return self._with_lookup(lookup, lambda: super(PaddleWorker, self).predict(records))

    @override
    def export(self, folder: Path, lookup: Lookup | None = None) -> None:
        """Exports the model with all rows of its tables, which `lookup` reads from the servers."""
        full_model = build_model(self._user_code, self._seed)
        arrays = self.parameters()
        for table in self._embeddings:
            if lookup is None:
                raise ModelError(
                    f"the rows of {table.name!r} are on parameter servers: pass a lookup to export them"
                )
            arrays[table.weight] = table.all_rows(lookup)
        set_tensors(full_model.state_dict(), arrays, "the servers' model")
        self.write(full_model, folder)

    def _with_lookup(self, lookup: Lookup | None, act: Callable[[], T], *, keep: bool = False) -> T:
        """Calls a function with `lookup` available to the embeddings' forward passes.

        Args:
            lookup: Returns rows of a table; None if there are no parameter servers to ask.
            act: Runs forward passes.
            keep: Whether to keep the rows for their gradients.
        """
        for table in self._embeddings:
            table.clear()
            table.lookup = lookup
        try:
            return act()
        finally:
            for table in self._embeddings:
                table.lookup = None
                if not keep:
                    table.clear()
