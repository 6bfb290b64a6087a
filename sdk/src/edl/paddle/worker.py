"""Asynchronous training of a PaddlePaddle model: gradients for parameter servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from edl.model.adapter import build
from edl.model.calls import FEWER, Calls
from edl.model.errors import ModelError
from edl.paddle.kinds import translate
from edl.paddle.network import Network, fill
from edl.paddle.statistics import running
from edl.paddle.tables import Lookup, Rows, sparse
from edl.servers.worker import Gradients, Table

T = TypeVar("T")


class PaddleWorker(Network):
    """A `Worker`. Every `paddle.nn.Embedding(sparse=True)` is a table at the servers."""

    def __init__(self, layer: Any, calls: Calls, seed: int) -> None:
        self._rows = [Rows(name, part, seed) for name, part in sparse(layer)]
        self._seed = seed
        self._batches = 0
        calls.less_memory = FEWER
        super().__init__(layer, calls)
        if running(layer):
            raise ModelError(
                f"model() of {calls.model.path} keeps running statistics (batch normalization, or "
                "buffers that are saved), which parameter servers do not have: use LayerNorm or "
                "GroupNorm, or train with --sync"
            )
        self._optimizer = translate(calls.user("optimizer", layer.parameters()), calls.model.path)
        self._dense = dict(zip(self.names, self.trained))

    def initial(self) -> dict[str, Any]:
        """As in `Worker`."""
        return {name: one.numpy() for name, one in self._dense.items()}

    def tables(self) -> dict[str, Table]:
        """As in `Worker`."""
        return {one.name: one.table for one in self._rows}

    def optimizer(self) -> dict[str, Any]:
        """As in `Worker`."""
        return self._optimizer

    def load(self, dense: Mapping[str, Any]) -> None:
        """As in `Worker`."""
        fill(self._dense, dense, "what the servers hold")

    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        """As in `Worker`."""
        self._batches += 1
        self._calls.at(f"its batch {self._batches}", records)
        loss = self._looking(lookup, lambda: self.loss(records), keep=True)
        self._calls.run("the gradient", loss.backward)
        dense = {}
        for name, one in self._dense.items():
            if one.grad is not None:
                dense[name] = one.grad.numpy()
                one.clear_gradient(False)
        rows = {one.name: one.gradient() for one in self._rows}
        used = {name: found for name, found in rows.items() if found is not None}
        return Gradients(dense, used, {"loss": loss.item()})

    def evaluate(self, records: Any, lookup: Lookup | None = None) -> dict[str, float]:
        """As in `Adapter`."""
        return self._looking(lookup, lambda: super(PaddleWorker, self).evaluate(records))

    def predict(self, records: Any, lookup: Lookup | None = None) -> dict[str, Any]:
        """As in `Adapter`."""
        return self._looking(lookup, lambda: super(PaddleWorker, self).predict(records))

    def export(self, folder: Path, lookup: Lookup | None = None) -> None:
        """As in `Adapter`: with all rows of its tables, as if it had been trained without them."""
        whole = build(self._calls, self._seed)
        arrays = self.parameters()
        for one in self._rows:
            if lookup is None:
                raise ModelError(f"rows of {one.name!r} are at parameter servers: give a lookup")
            arrays[one.weight] = one.whole(lookup)
        fill(whole.state_dict(), arrays, "what the servers hold")
        self.write(whole, folder)

    def _looking(self, lookup: Lookup | None, act: Callable[[], T], *, keep: bool = False) -> T:
        """Does it while rows can be looked up.

        Args:
            lookup: Where rows are.
            act: Forward passes.
            keep: Whether gradients of the rows will be asked for.
        """
        for one in self._rows:
            one.forget()
            one.lookup = lookup
        try:
            return act()
        finally:
            for one in self._rows:
                one.lookup = None
                if not keep:
                    one.forget()
