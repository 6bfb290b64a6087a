"""The arguments of a synchronous run, and the types of its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from edl.errors import DataError
from edl.master.protocol import Json, Round
from edl.sources.base import Dataset

ON_NAN = ("fail", "skip")


@dataclass(frozen=True)
class SyncStep:
    """One global step, as every member sees it."""

    step: int
    """Number of steps made so far, this one included."""
    epoch: int
    records: int
    """Of this step, of all members."""
    metrics: Mapping[str, float]
    """Means over the step's records."""
    round: int
    rank: int
    world_size: int
    seconds: float
    """From the end of the previous step to the end of this one."""
    exchange_s: float
    """The part of it that was spent in collective calls."""


OnStep = Optional[Callable[[SyncStep], None]]


@dataclass
class SyncResult:
    """The result of a run as one trainer has it."""

    steps: int = 0
    records: int = 0
    """Trained by the group since the job began, according to this member's state."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Of the last step."""
    rounds: int = 0
    """Number of rounds in which this trainer took part."""
    last_round: Round | None = None
    """The last of them, also if this trainer came after its last step."""
    redone: int = 0
    """Steps that were done again because a member was lost in them."""
    skipped: int = 0
    """Steps left out because a loss was not finite."""
    late: bool = False
    """Whether others trained all data before this trainer came, or while it was frozen or cut off:
    it does not have the trained model."""
    whole: bool = False
    """Whether all data was trained; False if this trainer had to leave before."""


@dataclass(frozen=True)
class SyncOptions:
    """Checked arguments of `edl.sync.train`; built with keywords."""

    batch_size: int
    micro_batches: int
    constant_batch: bool
    code: Mapping[str, str]
    checkpoints: Path | None
    checkpoint_steps: int
    on_nan: str
    seed: int
    on_step: OnStep = None
    between: OnStep = None

    def __post_init__(self) -> None:
        """Checks the arguments.

        Raises:
            DataError: An argument is out of its range.
        """
        for name, least in (("batch_size", 1), ("micro_batches", 1), ("checkpoint_steps", 0)):
            if getattr(self, name) < least:
                raise DataError(f"{name} is {getattr(self, name)}: it must be at least {least}")
        if self.micro_batches > self.batch_size:
            raise DataError(
                f"micro_batches is {self.micro_batches}, but a step has {self.batch_size} records "
                "(batch_size): a micro-batch needs at least one"
            )
        if self.on_nan not in ON_NAN:
            raise DataError(f"on_nan is {self.on_nan!r}: write one of {', '.join(ON_NAN)}")
        if self.checkpoint_steps and self.checkpoints is None:
            raise DataError("checkpoint_steps is given, but no folder for checkpoints")


@dataclass(frozen=True)
class RunSpec:
    """What all members of a run train on, and how; built with keywords."""

    dataset: Dataset
    description: Json
    """Of the data set, for the master."""
    options: SyncOptions
