"""Options and results of asynchronous training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Optional

from edl.errors import DataError
from edl_protocol.pserver import Rules

if TYPE_CHECKING:
    from edl.servers.client import PserverClient

ON_NAN = ("fail", "skip")


@dataclass(frozen=True)
class Step:
    """A batch whose gradients the servers have applied."""

    number: int
    """Number of the batch in this trainer, from 1."""
    version: int
    """Number of batches from all trainers that the local parameters contain."""
    epoch: int
    records: int
    metrics: Mapping[str, float]
    staleness: int
    """Number of batches that other trainers pushed between this batch's pull and its push."""
    seconds: float
    """Duration of this batch."""
    exchange_s: float
    """Seconds of this batch spent on calls to the servers."""
    servers: PserverClient


OnStep = Optional[Callable[[Step], None]]


@dataclass
class TrainingResult:
    """The result of one trainer's run."""

    steps: int = 0
    records: int = 0
    skipped: int = 0
    """Batches skipped because a loss or gradient was NaN or infinite."""
    stale: int = 0
    """How often a batch was recomputed because it was too stale."""
    lost_steps: int = 0
    """Batches of this trainer that were lost in rollbacks of the servers."""
    lost_records: int = 0
    """Records of these batches."""
    refused_rows: int = 0
    """Number of row gradients that servers dropped because a table or their memory was full."""
    version: int = 0
    """Number of batches from all trainers that the final parameters contain."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Means over this trainer's records of the last epoch."""
    whole: bool = False
    """Whether all data was trained; False if this trainer had to leave early."""


def check_rules(rules: Rules) -> Rules:
    """Returns the servers' rules if all their values are valid.

    Raises:
        DataError: A value is out of range.
    """
    least = {"max_staleness": 0, "checkpoint_steps": 0, "checkpoint_seconds": 0}
    least["checkpoint_keep"] = 1
    for name, value in least.items():
        setting: Any = getattr(rules, name)
        if setting is not None and not setting >= value:
            raise DataError(f"{name} is {setting}: it must be at least {value}")
    return rules


class EpochMeans:
    """Means of metrics over the records of one epoch."""

    def __init__(self) -> None:
        self._epoch = -1
        self._sums: dict[str, float] = {}
        self._records: dict[str, int] = {}

    def add(self, epoch: int, metrics: Mapping[str, float], records: int) -> None:
        """Adds a step; a new epoch discards the sums of the previous one."""
        if epoch != self._epoch:
            self._epoch, self._sums, self._records = epoch, {}, {}
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value) * records
            self._records[name] = self._records.get(name, 0) + records

    def means(self) -> dict[str, float]:
        """Returns the means by name."""
        return {name: total / max(1, self._records[name]) for name, total in self._sums.items()}
