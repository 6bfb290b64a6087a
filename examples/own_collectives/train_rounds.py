"""A script in the style of torchrun, made elastic by `edl.Rounds`, with its own collectives.

    edl run -n 4 examples/own_collectives/train_rounds.py --out build/line

A process group is created from rank and number of members, as in any such script; here it is
`edl.collective.Ring`, in your program it may be torch.distributed or MPI. When members
change, a new round starts in the same process. `edl.sync.train` does all this for you.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import edl
import numpy as np
from edl.collective import Interrupt, Listener, Ring

FEATURES = 8
BATCH, EPOCHS, RATE = 16, 3, 0.1
IDLE_S = 0.01
OVER = "over"
"""Stands for the end of the data. None as a batch: other trainers hold the remaining records."""


def data() -> edl.Dataset:
    """Returns points on a plane with noise."""
    chance = np.random.default_rng(2)
    inputs = chance.normal(size=(2048, FEATURES))
    targets = inputs @ np.arange(1.0, FEATURES + 1) + chance.normal(0, 0.01, len(inputs))
    return edl.from_arrays("plane", inputs, targets)


class Training:
    """The weights, their number of steps, and the current batch (or None, or `OVER`)."""

    def __init__(self) -> None:
        self.weights = np.zeros(FEATURES)
        self.step = 0
        self.batches: Iterator[Any] = iter(edl.batches(data(), BATCH, epochs=EPOCHS, idle_s=IDLE_S))
        self.batch = next(self.batches, OVER)

    def synchronize(self, ring: Ring) -> None:
        """Copies the weights of the member with the most steps to all members."""
        steps = [int(step) for step in ring.gather(str(self.step).encode())]
        source = steps.index(max(steps))
        _, (weights,) = ring.broadcast([self.weights], b"", source)
        self.weights, self.step = weights.copy(), steps[source]

    def do_step(self, ring: Ring, *, changed: bool) -> tuple[bool, bool]:
        """Makes one step together with all members.

        Returns:
            Whether a member knows of a later round; whether a member has more data.
        """
        sums = np.zeros(FEATURES + 3)
        if isinstance(self.batch, tuple):
            inputs, targets = self.batch
            sums[:FEATURES] = inputs.T @ (inputs @ self.weights - targets)
            sums[FEATURES] = len(inputs)
        sums[-2:] = changed, self.batch is not OVER
        ring.all_reduce(sums)  # may raise RoundOver; then nothing has changed
        if sums[FEATURES]:
            self.weights -= RATE * sums[:FEATURES] / sums[FEATURES]
            self.step += 1
        if self.batch is not OVER:
            self.batch = next(self.batches, OVER)  # requesting the next batch acknowledges this one
        return sums[-2] > 0, sums[-1] > 0


def one_round(training: Training, rounds: edl.Rounds, round_: edl.Round, ring: Ring) -> None:
    """Makes steps until members change or no member has data."""
    training.synchronize(ring)
    rounds.ready()
    print(f"round {round_.number}: rank {round_.rank} of {round_.world_size}, step {training.step}")
    has_data = True
    while has_data:
        changes, has_data = training.do_step(ring, changed=rounds.changed)
        if changes and has_data:
            return
    rounds.finish()


def main() -> None:
    """Trains, and saves the weights."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    settings = edl.session().settings
    interrupt, listener = Interrupt(), Listener(settings.address)
    training = Training()
    with edl.Rounds(listener.address[1], on_broken=interrupt.set) as rounds:
        for round_ in rounds:
            interrupt.clear()
            try:
                with Ring.connect(
                    listener,
                    [member.address for member in round_.members],
                    round_.rank,
                    number=round_.number,
                    key=settings.token.encode(),
                    interrupt=interrupt,
                ) as ring:
                    one_round(training, rounds, round_, ring)
            except edl.RoundOver as error:
                print(f"round {round_.number} is over: {error}")
                rounds.broken()
    newest = edl.latest_checkpoint(out)
    if (
        newest is None or newest.step <= training.step
    ):  # skipped by a member that joined after training
        edl.save_checkpoint(out, {"weights": training.weights}, step=training.step)
    print(f"weights after {training.step} steps: {np.round(training.weights, 2)}")


if __name__ == "__main__":
    main()
