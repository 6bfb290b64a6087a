"""A classifier of handwritten digits in JAX; trainers come and go while it trains.

    pip install jax numpy edl-sdk
    edl run -n 3 --schedule "30%:kill, 60%:+1" examples/jax_digits/train_jax.py

Each trainer leases batches of its own, and all sum their gradients in each step. Each is a process of
JAX with its own devices; when members change, the others continue in the next round.
"""

from __future__ import annotations

import argparse
import os
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")  # cores are shared

import edl
import edl.jax
import jax
import jax.numpy as jnp
import numpy as np

TEST, BATCH, RATE = 360, 16, 0.3
IDLE_S = 0.01
OVER = "over"
"""Stands for the end of the data. None as a batch: other trainers hold the remaining records."""
IMAGES = Path(__file__).parents[1] / "numpy_digits/train.py"


def fresh() -> dict[str, Any]:
    """Returns the parameters of a perceptron, before training."""
    chance = np.random.default_rng(0)
    first = chance.normal(0, 0.15, (64, 64)).astype(np.float32)
    last = chance.normal(0, 0.15, (64, 10)).astype(np.float32)
    zeros = {"b1": np.zeros(64, np.float32), "b2": np.zeros(10, np.float32)}
    return {"w1": first, "w2": last, **zeros}


def outputs(state: dict[str, Any], images: Any) -> Any:
    """Returns the logits of images."""
    hidden = jax.nn.relu(images @ state["w1"] + state["b1"])
    return hidden @ state["w2"] + state["b2"]


def loss_sum(state: dict[str, Any], images: Any, labels: Any) -> Any:
    """Returns the sum of the images' cross-entropies."""
    logs = jax.nn.log_softmax(outputs(state, images))
    return -jnp.take_along_axis(logs, labels[:, None], axis=1).sum()


loss_and_gradient = jax.jit(jax.value_and_grad(loss_sum))


@jax.jit  # type: ignore[untyped-decorator]  # jax has no types here
def update(state: dict[str, Any], gradient: dict[str, Any], count: Any) -> dict[str, Any]:
    """Returns the state after a step on so many records."""
    return {name: state[name] - RATE * gradient[name] / count for name in state}


def contribution(state: dict[str, Any], batch: Any, *, changed: bool) -> dict[str, Any]:
    """Returns what this trainer adds to a step; zeros where it has no batch."""
    parts: dict[str, Any] = {"changed": changed, "left": batch is not OVER}
    if not isinstance(batch, tuple):
        zeros = {name: jnp.zeros_like(value) for name, value in state.items()}
        return {**parts, "gradient": zeros, "loss": jnp.zeros(()), "count": 0}
    images, labels = batch
    loss, gradient = loss_and_gradient(state, images, labels)
    return {**parts, "gradient": gradient, "loss": loss, "count": len(labels)}


class Batches:
    """This trainer's batches: the current one stays until its step is made."""

    def __init__(self, data: edl.Dataset, epochs: int) -> None:
        self._batches: Iterator[Any] = iter(
            edl.batches(data, BATCH, epochs=epochs, shuffle_seed=1, idle_s=IDLE_S)
        )
        self.current = next(self._batches, OVER)

    def advance(self) -> None:
        """Requests the next batch, which acknowledges the current one."""
        if self.current is not OVER:
            self.current = next(self._batches, OVER)


def one_round(rounds: edl.jax.JaxRounds, batches: Batches) -> None:
    """Makes steps until members change, or none has data."""
    if rounds.has_counted:  # the others have made the step that was interrupted here
        batches.advance()
    while True:
        total = rounds.sum(contribution(rounds.state, batches.current, changed=rounds.changed))
        count = int(total["count"])
        if count:
            rounds.state = update(rounds.state, total["gradient"], count)
            rounds.step += 1
            if rounds.step % 20 == 0 or rounds.step == 1:
                loss = float(total["loss"]) / count
                print(f"step {rounds.step}: loss {loss:.4f} of {count} records")
        batches.advance()
        if not int(total["left"]):
            rounds.finish()
            return
        if int(total["changed"]):
            return


def main() -> None:
    """Trains, and prints the accuracy on images held out."""
    parser = argparse.ArgumentParser(description="Handwritten digits, elastic, in JAX.")
    parser.add_argument("--epochs", type=int, default=10)
    epochs = parser.parse_args().epochs
    images, labels = runpy.run_path(str(IMAGES))["digits"]()
    images, labels = images.astype(np.float32), labels.astype(np.int32)
    data = edl.from_arrays("digits", images[:-TEST], labels[:-TEST])
    batches = Batches(data, epochs)
    with edl.jax.JaxRounds(fresh()) as rounds:
        for round_ in rounds:
            print(
                f"round {round_.number}: {round_.rank} of {round_.world_size}, step {rounds.step}"
            )
            try:
                one_round(rounds, batches)
            except edl.RoundOver as error:
                print(f"round {round_.number} is over: {error}")
                rounds.broken()
    right = (np.asarray(outputs(rounds.state, images[-TEST:])).argmax(1) == labels[-TEST:]).mean()
    print(f"test accuracy {right:.3f} after {rounds.step} steps")


if __name__ == "__main__":
    main()
