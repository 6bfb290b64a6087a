"""A script in the style of torchrun, made elastic by `edl.Rounds`: it brings its own collectives.

    edl run -n 4 examples/own_collectives/train_rounds.py --out build/line

A process group is made from rank and number of members, as in any such script; here it is
`edl.exchange.Ring`, in your program it may be torch.distributed or MPI. Whenever members change
there is another round, and the process goes on in it. `edl.sync.train` does all this for you.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import edl
import numpy as np
from edl.exchange import Interrupt, Listener, Ring
from edl.rendezvous import Round

FEATURES = 8
BATCH, EPOCHS, RATE = 16, 3, 0.1
IDLE_S = 0.01
OVER = "over"
"""In place of a batch where none will come. None: others hold what is left, for now."""


def data() -> edl.Dataset:
    """Points on a plane, with a little noise."""
    chance = np.random.default_rng(2)
    inputs = chance.normal(size=(2048, FEATURES))
    wanted = inputs @ np.arange(1.0, FEATURES + 1) + chance.normal(0, 0.01, len(inputs))
    return edl.from_arrays("plane", inputs, wanted)


class Training:
    """The weights, how many steps made them, and the batch in hand (or None, or `OVER`)."""

    def __init__(self) -> None:
        self.weights = np.zeros(FEATURES)
        self.step = 0
        self.batches: Iterator[Any] = iter(edl.batches(data(), BATCH, epochs=EPOCHS, idle_s=IDLE_S))
        self.batch = next(self.batches, OVER)

    def become_alike(self, ring: Ring) -> None:
        """Newcomers take over what others have; one that missed a step, too."""
        steps = [int(one) for one in ring.gather(str(self.step).encode())]
        source = steps.index(max(steps))
        _, (weights,) = ring.broadcast([self.weights], b"", source)
        self.weights, self.step = weights.copy(), steps[source]

    def do_step(self, ring: Ring, *, changed: bool) -> tuple[bool, bool]:
        """One step of all members together.

        Returns:
            Whether anybody knows of a later round; whether anybody has more to train on.
        """
        told = np.zeros(FEATURES + 3)
        if isinstance(self.batch, tuple):
            inputs, wanted = self.batch
            told[:FEATURES] = inputs.T @ (inputs @ self.weights - wanted)
            told[FEATURES] = len(inputs)
        told[-2:] = changed, self.batch is not OVER
        ring.all_reduce(told)  # may raise RoundOver: then nothing has changed here
        if told[FEATURES]:
            self.weights -= RATE * told[:FEATURES] / told[FEATURES]
            self.step += 1
        if self.batch is not OVER:
            self.batch = next(self.batches, OVER)  # asking for more acknowledges this one
        return told[-2] > 0, told[-1] > 0


def one_round(training: Training, rounds: edl.Rounds, found: Round, ring: Ring) -> None:
    """Steps until members change, or until nobody has anything left."""
    training.become_alike(ring)
    rounds.ready()
    print(f"round {found.number}: rank {found.rank} of {found.world}, step {training.step}")
    more = True
    while more:
        changes, more = training.do_step(ring, changed=rounds.changed)
        if changes and more:
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
        for found in rounds:
            interrupt.clear()
            try:
                with Ring.connect(
                    listener,
                    [one.address for one in found.members],
                    found.rank,
                    number=found.number,
                    key=settings.token.encode(),
                    interrupt=interrupt,
                ) as ring:
                    one_round(training, rounds, found, ring)
            except edl.RoundOver as error:
                print(f"round {found.number} is over: {error}")
                rounds.broken()
    newest = edl.latest_checkpoint(out)
    if newest is None or newest.step <= training.step:  # not who came when all was trained
        edl.save_checkpoint(out, {"weights": training.weights}, step=training.step)
    print(f"weights after {training.step} steps: {np.round(training.weights, 2)}")


if __name__ == "__main__":
    main()
