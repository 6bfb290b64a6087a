"""Run by `bench.steps` with PaddlePaddle's interpreter: the same model with EDL and without.

Both train the same file's model on the same data, in blocks of steps that alternate within one
training: the speed of a machine that others use, too, changes within seconds. EDL's threads go on
while plain PaddlePaddle has its turn. Prints milliseconds a step of each block.
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
"""Steps of either that are not counted: their code and data come back into the caches."""


class Plain:
    """The loop that people write."""

    def __init__(self, found: models.Model, data: str, batch: int) -> None:
        paddle.seed(0)
        self._user = found.functions
        self._layer = self._user["model"]()
        self._optimizer = self._user["optimizer"](self._layer.parameters())
        with np.load(data) as arrays:
            self._batches = _batches(dict(arrays), batch)

    def steps(self, count: int) -> float:
        """Trains; seconds."""
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
    """Called after each of EDL's steps."""

    def __init__(self, plain: Plain) -> None:
        self.told: dict[str, list[float]] = {"plain": [], "elastic": []}
        self._plain, self._steps, self._begun_s = plain, 0, 0.0

    def __call__(self, _: object) -> None:
        """Counts the step; after a block of them the other one has its turn."""
        self._steps += 1
        if self._steps == _AGAIN:
            self._begun_s = perf_counter()
        if self._steps < _AGAIN + BLOCK:
            return
        self._tell("elastic", perf_counter() - self._begun_s)
        self._plain.steps(_AGAIN)
        self._tell("plain", self._plain.steps(BLOCK))
        self._steps = 0

    def _tell(self, name: str, took_s: float) -> None:
        self.told[name].append(took_s * 1000 / BLOCK)


def main(model: str, data: str, batch: int, epochs: int) -> None:
    """Trains in blocks; the first of each warms up."""
    found = models.load(model)
    blocks = Blocks(Plain(found, data, batch))
    replica, dataset = models.replica(found, seed=0), models.data(data, "training")
    edl.sync.train(
        replica, dataset, batch, micro_batches=1, epochs=epochs, shuffle_seed=0, on_step=blocks
    )
    sys.stdout.write(json.dumps({name: told[1:] for name, told in blocks.told.items()}) + "\n")


def _batches(arrays: dict[str, Any], batch: int) -> Iterator[dict[str, Any]]:
    chance = np.random.default_rng(0)
    count = len(next(iter(arrays.values())))
    while True:
        order = chance.permutation(count)
        for begin in range(0, count, batch):
            places = order[begin : begin + batch]
            yield {name: one[places] for name, one in arrays.items()}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5]))
