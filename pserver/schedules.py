"""Schedules of the learning rate: its factor by version, so that a restored server continues it.

Versions are those of the server: one for each batch of any trainer.
"""

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Versions = Annotated[int, Field(ge=1, le=1 << 53, strict=True)]
Share = Annotated[float, Field(ge=0, le=1)]


class Schedule(BaseModel):
    """Base class: a constant rate after a linear warm-up."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    warmup: Annotated[int, Field(ge=0, le=1 << 53, strict=True)] = 0
    """Versions in which the factor rises to 1; the schedule proper begins after them."""
    start: Share = 0.0
    """The factor at version 0 of a warm-up."""

    def factor(self, version: int) -> float:
        """The factor of the learning rate, from 0 to 1.

        Args:
            version: Number of updates before this one.
        """
        if version < self.warmup:
            return self.start + (1 - self.start) * version / self.warmup
        return self.decayed(version - self.warmup)

    def decayed(self, version: int) -> float:
        """The factor a number of versions after the warm-up."""
        del version
        return 1.0


class Constant(Schedule):
    """A warm-up only."""

    kind: Literal["constant"]


class StepDecay(Schedule):
    """A factor every some versions."""

    kind: Literal["step"]
    every: Versions
    by: Annotated[float, Field(gt=0, le=1)] = 0.1

    def decayed(self, version: int) -> float:
        """As in `Schedule`."""
        return float(self.by ** (version // self.every))


class ExponentialDecay(Schedule):
    """A factor every some versions, without steps."""

    kind: Literal["exponential"]
    every: Versions = 1
    by: Annotated[float, Field(gt=0, le=1)]

    def decayed(self, version: int) -> float:
        """As in `Schedule`."""
        return float(self.by ** (version / self.every))


class CosineDecay(Schedule):
    """Half a cosine (Loshchilov and Hutter, 2017), and its end from then on."""

    kind: Literal["cosine"]
    versions: Versions
    lowest: Share = 0.0

    def decayed(self, version: int) -> float:
        """As in `Schedule`."""
        done = min(1.0, version / self.versions)
        return self.lowest + (1 - self.lowest) * (1 + math.cos(math.pi * done)) / 2


AnySchedule = Annotated[
    Constant | StepDecay | ExponentialDecay | CosineDecay, Field(discriminator="kind")
]
