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
    """Records of this step, for all members together."""
    metrics: Mapping[str, float]
    """Means over the step's records."""
    round: int
    rank: int
    world_size: int
    seconds: float
    """Time from the end of the previous step to the end of this one."""
    exchange_s: float
    """Time spent in collective calls."""


OnStep = Optional[Callable[[SyncStep], None]]


@dataclass
class SyncResult:
    """One trainer's view of the result of a run."""

    steps: int = 0
    records: int = 0
    """Records that the group has trained since the job began, according to this member's state."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Metrics of the last step."""
    rounds: int = 0
    """Number of rounds in which this trainer took part."""
    last_round: Round | None = None
    """The last round of this trainer, even if it joined after the last step."""
    redone: int = 0
    """Number of steps that were made again because a member was lost during them."""
    skipped: int = 0
    """Number of steps that were skipped because a loss was not finite."""
    late: bool = False
    """Whether the others trained all data before this trainer joined, or while it was frozen or
    disconnected. It does not have the trained model."""
    whole: bool = False
    """Whether all data was trained; False if this trainer had to leave earlier."""


@dataclass(frozen=True)
class SyncOptions:
    """The arguments of `edl.sync.train`, checked; built with keywords."""

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
            DataError: The value of an argument is invalid.
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
    """The data set and the options of a run, the same in all members; built with keywords."""

    dataset: Dataset
    description: Json
    """Description of the data set, for the master."""
    options: SyncOptions
