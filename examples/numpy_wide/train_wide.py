"""Wide and deep click prediction in plain numpy, with embeddings at parameter servers.

    python examples/numpy_wide/train_wide.py

starts a master, two servers and three trainers on this machine; the third joins later and starts
from the current parameters. In a job on a cluster the same program is one trainer.

The wide part has a weight for each user and each item; the deep part a small network over their
embeddings. The servers store the rows, and a batch looks up only those that it needs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import edl
import numpy as np
from edl import servers
from edl.servers import Gradients, Lookup, Step, Table

USERS, ITEMS, DIM, HIDDEN = 300, 200, 8, 16
CLICKS, TEST, BATCH = 45_000, 5_000, 64
EVEN = 0.5
SHIFT = 1 << 32
"""Keeps ids of users and items apart in one table."""


def clicks() -> tuple[Any, Any, Any]:
    """Generates users, items, and whether the user clicked on the item."""
    chance = np.random.default_rng(0)
    tastes, topics = chance.normal(size=(USERS, 4)), chance.normal(size=(ITEMS, 4))
    users, items = chance.integers(0, USERS, CLICKS), chance.integers(0, ITEMS, CLICKS)
    score = (tastes[users] * topics[items]).sum(1) + topics[items, 0]
    odds = 1 / (1 + np.exp(-2 * score))
    return users, items + SHIFT, (chance.random(CLICKS) < odds).astype(np.float32)


class WideAndDeep:
    """A worker of `edl.servers`: describes the model and computes its gradients."""

    def __init__(self) -> None:
        self.dense: dict[str, Any] = {}

    def initial(self) -> Mapping[str, Any]:
        """Returns the initial weights of the network."""
        chance = np.random.default_rng(1)
        return {
            "w1": chance.normal(0, 0.3, (2 * DIM, HIDDEN)),
            "b1": np.zeros(HIDDEN),
            "w2": chance.normal(0, 0.3, (HIDDEN, 1)),
            "b": np.zeros(1),
        }

    def tables(self) -> dict[str, Table]:
        """Returns the tables; their rows are created at the first lookup."""
        return {"deep": Table(DIM, init=0.1, seed=1), "wide": Table(1, init=0.0)}

    def optimizer(self) -> dict[str, Any]:
        """Returns the optimizer that the servers run."""
        return {"kind": "adagrad", "learning_rate": 0.3, "initial": 0.1}

    def load(self, dense: Mapping[str, Any]) -> None:
        """Copies the servers' dense parameters."""
        self.dense = {name: array.copy() for name, array in dense.items()}

    def odds(self, users: Any, items: Any, lookup: Lookup) -> tuple[Any, dict[str, Any]]:
        """Returns click probabilities, and the values that the backward pass needs."""
        ids, places = np.unique(np.concatenate([users, items]), return_inverse=True)
        deep, wide = lookup("deep", ids)[places], lookup("wide", ids)[places, 0]
        count = len(users)
        x = np.hstack([deep[:count], deep[count:]])
        hidden = np.maximum(0, x @ self.dense["w1"] + self.dense["b1"])
        score = (hidden @ self.dense["w2"])[:, 0] + wide[:count] + wide[count:] + self.dense["b"]
        return 1 / (1 + np.exp(-score)), {"ids": ids, "places": places, "x": x, "hidden": hidden}

    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        """Returns the gradients of the mean cross entropy."""
        users, items, labels = records
        odds, forward = self.odds(users, items, lookup)
        error = ((odds - labels) / len(labels)).astype(np.float32)
        back = (error[:, None] @ self.dense["w2"].T) * (forward["hidden"] > 0)
        dense = {
            "w1": forward["x"].T @ back,
            "b1": back.sum(0),
            "w2": forward["hidden"].T @ error[:, None],
            "b": error.sum(keepdims=True),
        }
        rows = back @ self.dense["w1"].T
        deep = np.zeros((len(forward["ids"]), DIM), np.float32)
        wide = np.zeros((len(forward["ids"]), 1), np.float32)
        np.add.at(deep, forward["places"], np.vstack([rows[:, :DIM], rows[:, DIM:]]))
        np.add.at(wide[:, 0], forward["places"], np.tile(error, 2))
        sparse = {"deep": (forward["ids"], deep), "wide": (forward["ids"], wide)}
        return Gradients(dense, sparse, {"loss": cross_entropy(odds, labels)})


def cross_entropy(odds: Any, labels: Any) -> float:
    """Returns the loss; random guessing has 0.69."""
    return float(-np.log(np.where(labels > 0, odds, 1 - odds) + 1e-7).mean())


def train(epochs: int) -> None:
    """Runs one trainer."""
    name, data = edl.session().settings.trainer, clicks()
    worker = WideAndDeep()

    def report(step: Step) -> None:
        if step.number == 1:
            print(f"{name}: first batch at version {step.version}, loss {step.metrics['loss']:.3f}")

    loop = edl.from_arrays("clicks", *(column[:-TEST] for column in data))
    result = servers.train(worker, loop, BATCH, epochs=epochs, shuffle_seed=1, on_step=report)
    print(f"{name}: {result.steps} of {result.version} steps, loss {result.metrics}")
    test(worker, data)


def test(worker: WideAndDeep, data: tuple[Any, Any, Any]) -> None:
    """Evaluates the parameters on test clicks."""
    final = servers.fetch()
    worker.load(final.dense)

    def lookup(table: str, ids: Any) -> Any:
        known_ids, rows = final.tables[table]
        positions = np.minimum(np.searchsorted(known_ids, ids), len(known_ids) - 1)
        return np.where((known_ids[positions] == ids)[:, None], rows[positions], 0)

    users, items, labels = (column[-TEST:] for column in data)
    odds, _ = worker.odds(users, items, lookup)
    right = float(((odds > EVEN) == (labels > EVEN)).mean())
    print(f"test accuracy {right:.3f}, loss {cross_entropy(odds, labels):.3f}")


def run_locally(epochs: int) -> int:
    """Runs the job on this machine; adds a trainer when half of the records are done."""
    from edl.local.run import Options, Run  # noqa: PLC0415 - trainers have no need of it
    from edl.local.schedule import parse  # noqa: PLC0415 - see above

    program = [str(Path(__file__)), "--epochs", str(epochs)]
    schedule = parse("50%:+1")
    return Run(Options(program, 2, "clicks", schedule=schedule, servers=2)).run()


def main() -> None:
    """Trains."""
    parser = argparse.ArgumentParser(description="Clicks, wide and deep, with parameter servers.")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    if "EDL_MASTER" in os.environ:
        train(args.epochs)
    else:
        sys.exit(run_locally(args.epochs))


if __name__ == "__main__":
    main()
