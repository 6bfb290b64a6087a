"""Runs fuzz targets: each is a function that makes one random input and checks what becomes of it."""

import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from types import FrameType

Target = Callable[[Random], None]
"""Makes one input from the random numbers alone; any exception is a finding."""
INPUT_S = 30.0
"""CPU time; an input that takes more hangs; most take milliseconds. Others may use the machine."""


class HangError(Exception):
    """An input took more than `INPUT_S`."""


@dataclass(frozen=True)
class Finding:
    """An input at which a target failed."""

    target: str
    seed: int
    number: int
    error: str
    """The trace."""

    @property
    def replay(self) -> str:
        """The command that repeats this input alone."""
        return f"make fuzz TARGET={self.target} SEED={self.seed} FIRST={self.number} COUNT=1"


def run(name: str, target: Target, seed: int, numbers: range) -> Iterator[Finding]:
    """Runs a target on inputs with these numbers; on the main thread, because a timer ends hangs.

    Args:
        name: The target's name.
        target: The target.
        seed: Input `number` depends on seed and number alone.
        numbers: Numbers of the inputs.
    """
    for number in numbers:
        try:
            with _limited():
                target(Random(f"{name} {seed} {number}"))  # noqa: S311 - to be repeated
        except Exception:  # noqa: BLE001 - this is what a fuzzer looks for
            yield Finding(name, seed, number, traceback.format_exc())


@contextmanager
def _limited() -> Iterator[None]:
    def end(_: int, __: FrameType | None) -> None:
        raise HangError(f"an input took more than {INPUT_S} s of CPU time")

    before = signal.signal(signal.SIGPROF, end)
    try:
        signal.setitimer(signal.ITIMER_PROF, INPUT_S)
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
