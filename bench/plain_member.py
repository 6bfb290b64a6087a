"""Run by `bench.steps` with PaddlePaddle's interpreter: the same model with EDL and without.

Both train the same file's model on the same data, turn by turn; prints milliseconds a step.
"""

import json
import sys
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import edl
import edl.sync
import numpy as np
import paddle
from edl import model as models

WARM_UP = 20
"""Steps of each turn that are not counted."""


def main(model: str, data: str, batch: int, epochs: int, turns: int) -> None:
    """Trains in turns."""
    found = models.load(model)
    with np.load(data) as arrays:
        kept = dict(arrays)
    member = edl.session()
    told: dict[str, list[float]] = {"plain": [], "elastic": []}
    for turn in range(turns):
        told["plain"].append(_plain(found, kept, batch, epochs))
        dataset = models.data(data, f"turn-{turn}")
        told["elastic"].append(_elastic(found, dataset, batch, epochs, member))
    sys.stdout.write(json.dumps(told) + "\n")


def _plain(found: models.Model, arrays: dict[str, Any], batch: int, epochs: int) -> float:
    """The loop that people write."""
    paddle.seed(0)
    user = found.functions
    layer = user["model"]()
    optimizer = user["optimizer"](layer.parameters())
    ends = []
    for records in _batches(arrays, batch, epochs):
        inputs, labels = user["feed"](records)
        loss = user["loss"](layer(paddle.to_tensor(inputs)), paddle.to_tensor(labels))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        float(loss)
        ends.append(perf_counter())
    return _each_ms(ends)


def _elastic(
    found: models.Model, dataset: edl.Dataset, batch: int, epochs: int, member: edl.Session
) -> float:
    ends: list[float] = []
    edl.sync.train(
        models.replica(found, seed=0),
        dataset,
        batch,
        micro_batches=1,
        epochs=epochs,
        shuffle_seed=0,
        on_step=lambda _: ends.append(perf_counter()),
        member=member,
    )
    return _each_ms(ends)


def _batches(arrays: dict[str, Any], batch: int, epochs: int) -> Iterator[dict[str, Any]]:
    chance = np.random.default_rng(0)
    count = len(next(iter(arrays.values())))
    for _ in range(epochs):
        order = chance.permutation(count)
        for begin in range(0, count, batch):
            places = order[begin : begin + batch]
            yield {name: one[places] for name, one in arrays.items()}


def _each_ms(ends: list[float]) -> float:
    return (ends[-1] - ends[WARM_UP]) * 1000 / (len(ends) - 1 - WARM_UP)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
