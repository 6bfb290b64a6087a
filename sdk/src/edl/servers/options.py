"""What an asynchronous run is asked for, and what it tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

from edl.errors import DataError

if TYPE_CHECKING:
    from edl.servers.fleet import Servers

ON_NAN = ("fail", "skip")


@dataclass(frozen=True)
class Step:
    """One batch whose gradients are in the parameters."""

    number: int
    """Of this trainer's batches, from 1."""
    version: int
    """Batches of all trainers that are in the parameters here."""
    epoch: int
    records: int
    metrics: Mapping[str, float]
    staleness: int
    """Batches of others that came between the pull and the push."""
    seconds: float
    """From the begin to the end of this one."""
    exchange_s: float
    """Of these, spent with the servers."""
    servers: Servers


OnStep = Optional[Callable[[Step], None]]


@dataclass
class Result:
    """What this trainer did in a run that ended."""

    steps: int = 0
    records: int = 0
    skipped: int = 0
    """Batches left out because a number was none."""
    stale: int = 0
    """Times that a batch was computed again because servers found it too old."""
    lost_steps: int = 0
    """Of this trainer's own batches: servers went back to a checkpoint that lacks them."""
    lost_records: int = 0
    version: int = 0
    """Batches of all trainers that were in the parameters at the end."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Means over this trainer's records of the last epoch."""
    whole: bool = False
    """Whether the data was trained to the end; False where this trainer had to leave before."""


class Rules(NamedTuple):
    """What servers are asked to see to; the same in all trainers of a job."""

    max_staleness: Optional[int]  # noqa: UP045 - evaluated, and Python 3.9 has no other way
    modulate: bool
    checkpoint_steps: int
    checkpoint_seconds: float
    checkpoint_keep: int

    @property
    def saves(self) -> bool:
        """Whether there are checkpoints."""
        return bool(self.checkpoint_steps or self.checkpoint_seconds)

    def check(self) -> Rules:
        """Itself.

        Raises:
            DataError: One of them is out of its range.
        """
        least = {"max_staleness": 0, "checkpoint_steps": 0, "checkpoint_seconds": 0}
        least["checkpoint_keep"] = 1
        for name, value in least.items():
            given: Any = getattr(self, name)
            if given is not None and not given >= value:
                raise DataError(f"{name} is {given}: it must be at least {value}")
        return self


class Means:
    """Means of metrics over the records of one epoch."""

    def __init__(self) -> None:
        self._epoch = -1
        self._sums: dict[str, float] = {}
        self._records: dict[str, int] = {}

    def add(self, epoch: int, metrics: Mapping[str, float], records: int) -> None:
        """A step; those of an epoch before are forgotten."""
        if epoch != self._epoch:
            self._epoch, self._sums, self._records = epoch, {}, {}
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value) * records
            self._records[name] = self._records.get(name, 0) + records

    def told(self) -> dict[str, float]:
        """By name."""
        return {name: total / max(1, self._records[name]) for name, total in self._sums.items()}
