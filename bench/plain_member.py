"""Trains the same model with and without EDL; run by `bench.steps` in PaddlePaddle's interpreter.

Blocks of steps of both alternate within one training, because the speed of a shared machine
changes within seconds. EDL's threads keep running during the blocks without EDL. Prints the
milliseconds per step of each block.
"""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from time import perf_counter
from typing import Any

import edl
import edl.sync
import numpy as np
import paddle
from edl import model as models

BLOCK = 40
_AGAIN = 5
"""Steps at the start of each block that are not measured, because caches are cold."""


class Plain:
    """A training loop without EDL."""

    def __init__(self, model: models.Model, data: str, batch: int) -> None:
        paddle.seed(0)
        self._user = model.functions
        self._layer = self._user["model"]()
        self._optimizer = self._user["optimizer"](self._layer.parameters())
        with np.load(data) as arrays:
            self._batches = _batches(dict(arrays), batch)

    def steps(self, count: int) -> float:
        """Trains `count` steps; returns seconds."""
        begun_s = perf_counter()
        for records in islice(self._batches, count):
            inputs, labels = self._user["feed"](records)
            outputs = self._layer(paddle.to_tensor(inputs))
            loss = self._user["loss"](outputs, paddle.to_tensor(labels))
            loss.backward()
            self._optimizer.step()
            self._optimizer.clear_grad()
            float(loss)
        return perf_counter() - begun_s


class Blocks:
    """A step callback that alternates blocks with and without EDL."""

    def __init__(self, plain: Plain) -> None:
        self.times_ms: dict[str, list[float]] = {"plain": [], "elastic": []}
        self._plain, self._steps, self._begun_s = plain, 0, 0.0

    def __call__(self, _: object) -> None:
        """Counts a step; after a block, runs a block without EDL."""
        self._steps += 1
        if self._steps == _AGAIN:
            self._begun_s = perf_counter()
        if self._steps < _AGAIN + BLOCK:
            return
        self._record("elastic", perf_counter() - self._begun_s)
        self._plain.steps(_AGAIN)
        self._record("plain", self._plain.steps(BLOCK))
        self._steps = 0

    def _record(self, name: str, took_s: float) -> None:
        self.times_ms[name].append(took_s * 1000 / BLOCK)


def main(model: str, data: str, batch: int, epochs: int) -> None:
    """Trains in blocks; the first of each kind is a warm-up."""
    user_model = models.load(model)
    blocks = Blocks(Plain(user_model, data, batch))
    replica, dataset = models.replica(user_model, seed=0), models.data(data, "training")
    edl.sync.train(
        replica, dataset, batch, micro_batches=1, epochs=epochs, shuffle_seed=0, on_step=blocks
    )
    sys.stdout.write(
        json.dumps({name: times_ms[1:] for name, times_ms in blocks.times_ms.items()}) + "\n"
    )


def _batches(arrays: dict[str, Any], batch: int) -> Iterator[dict[str, Any]]:
    chance = np.random.default_rng(0)
    count = len(next(iter(arrays.values())))
    while True:
        order = chance.permutation(count)
        for begin in range(0, count, batch):
            places = order[begin : begin + batch]
            yield {name: array[places] for name, array in arrays.items()}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5]))
