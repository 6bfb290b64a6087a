"""The optimizers sgd, momentum, adagrad and adam, for dense parameters and for rows of tables.

Row updates are lazy: only the rows of a push and their momenta change. Adam counts the updates of each
row separately, so the first update of a rare row is as large as the first update of any other row.
Weight decay is decoupled (Loshchilov and Hutter, 2019) and also lazy: a row decays when it is updated.
Schedules depend on the version, which grows with each batch of any trainer. So a restored server
continues the schedules.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import override

from runtime.call_checks import RefusedError

Versions = Annotated[int, Field(ge=1, le=1 << 53, strict=True)]
Share = Annotated[float, Field(ge=0, le=1)]
Floats = NDArray[np.float32]
Counts = Floats | float
"""Number of updates, including this one; a column of numbers if it differs by row."""

_CHUNK = 1 << 16
"""Elements per step of a dense update, so that its working set stays in the processor's cache."""

Rate = Annotated[float, Field(gt=0, lt=1e6)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Small = Annotated[float, Field(gt=0, lt=1)]


class Schedule(BaseModel):
    """Base class: a constant rate after a linear warm-up."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    warmup: Annotated[int, Field(ge=0, le=1 << 53, strict=True)] = 0
    """Versions in which the factor rises to 1; the decay begins after them."""
    start: Share = 0.0
    """The factor at version 0 of a warm-up."""

    def factor(self, version: int) -> float:
        """Returns the factor of the learning rate, from 0 to 1.

        Args:
            version: Number of updates before this one.
        """
        if version < self.warmup:
            return self.start + (1 - self.start) * version / self.warmup
        return self.decayed(version - self.warmup)

    def decayed(self, version: int) -> float:
        """Returns the factor, given the number of versions since the warm-up."""
        del version
        return 1.0


class Constant(Schedule):
    """Only a warm-up, without a decay."""

    kind: Literal["constant"]


class StepDecay(Schedule):
    """Multiplies the rate by `by` after every `every` versions."""

    kind: Literal["step"]
    every: Versions
    by: Annotated[float, Field(gt=0, le=1)] = 0.1

    @override
    def decayed(self, version: int) -> float:
        return float(self.by ** (version // self.every))


class ExponentialDecay(Schedule):
    """Multiplies the rate by `by` over every `every` versions, continuously."""

    kind: Literal["exponential"]
    every: Versions = 1
    by: Annotated[float, Field(gt=0, le=1)]

    @override
    def decayed(self, version: int) -> float:
        return float(self.by ** (version / self.every))


class CosineDecay(Schedule):
    """Half a cosine over `versions` (Loshchilov and Hutter, 2017), then `lowest`."""

    kind: Literal["cosine"]
    versions: Versions
    lowest: Share = 0.0

    @override
    def decayed(self, version: int) -> float:
        done = min(1.0, version / self.versions)
        return self.lowest + (1 - self.lowest) * (1 + math.cos(math.pi * done)) / 2


AnySchedule = Annotated[
    Constant | StepDecay | ExponentialDecay | CosineDecay, Field(discriminator="kind")
]


class Optimizer(BaseModel):
    """Base class of optimizers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    slots: ClassVar[int] = 0
    """Number of state arrays, each shaped like the parameter."""
    counted: ClassVar[bool] = False
    """Whether the number of updates of each row is stored."""

    learning_rate: Rate
    weight_decay: Decay = 0.0
    """Share of a value that an update removes, before the learning rate is applied."""
    clip_norm: Annotated[float, Field(gt=0, lt=1e30)] | None = None
    """Largest norm of a batch's gradient, over all parameters and servers."""
    clip_value: Annotated[float, Field(gt=0, lt=1e30)] | None = None
    """Largest absolute value of an element of a gradient."""
    schedule: AnySchedule | None = None
    """Changes the learning rate by version; None for a constant rate."""

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if self.clip_norm is not None and self.clip_value is not None:
            raise ValueError("clip_norm and clip_value exclude each other: choose one")
        return self

    def rate_factor(self, version: int) -> float:
        """Returns the schedule's factor of the learning rate at a version."""
        return 1.0 if self.schedule is None else self.schedule.factor(version)

    def clipped(self, gradient: Floats, norm: float | None) -> Floats:
        """Returns a clipped copy of a gradient, or of a part of it.

        Args:
            gradient: The gradient.
            norm: Norm of the whole gradient at all servers; needed with `clip_norm`.
        """
        copy = gradient.copy()
        if self.clip_value is not None:
            np.clip(copy, -self.clip_value, self.clip_value, out=copy)
        if self.clips(norm):
            copy *= np.float32((self.clip_norm or 0.0) / (norm or 1.0))
        return copy

    def clips(self, norm: float | None) -> bool:
        """Returns whether a gradient with this norm is clipped by `clip_norm`."""
        return self.clip_norm is not None and norm is not None and norm > self.clip_norm

    @property
    def start(self) -> float:
        """Initial value of the slots."""
        return 0.0

    def update(
        self,
        values: Floats,
        slots: tuple[Floats, ...],
        gradient: Floats,
        *,
        rate: np.float32,
        counts: Counts,
    ) -> None:
        """Updates values and slots in place; the gradient may be overwritten.

        Args:
            values: The parameters.
            slots: `slots` arrays, each shaped like the values.
            gradient: Shaped like the values.
            rate: The learning rate with all its factors.
            counts: Number of updates of the values, including this one.
        """
        raise NotImplementedError

    def width(self, dim: int) -> int:
        """Returns the number of slot elements of a row with `dim` columns."""
        return dim * self.slots + self.counted


class Sgd(Optimizer):
    """Stochastic gradient descent."""

    kind: Literal["sgd"]

    @override
    def update(
        self,
        values: Floats,
        slots: tuple[Floats, ...],
        gradient: Floats,
        *,
        rate: np.float32,
        counts: Counts,
    ) -> None:
        gradient *= rate
        values -= gradient


class Momentum(Optimizer):
    """Sgd with momentum, optionally Nesterov's (Sutskever et al., 2013)."""

    slots: ClassVar[int] = 1
    kind: Literal["momentum"]
    momentum: Decay = 0.9
    nesterov: bool = False

    @override
    def update(
        self,
        values: Floats,
        slots: tuple[Floats, ...],
        gradient: Floats,
        *,
        rate: np.float32,
        counts: Counts,
    ) -> None:
        (speed,) = slots
        speed *= self.momentum
        speed += gradient
        if self.nesterov:
            gradient += self.momentum * speed
        else:
            gradient[...] = speed
        gradient *= rate
        values -= gradient


class Adagrad(Optimizer):
    """A learning rate per element, from the sum of its squared gradients (Duchi et al., 2011)."""

    slots: ClassVar[int] = 1
    kind: Literal["adagrad"]
    initial: Annotated[float, Field(ge=0, lt=1e6)] = 0.0
    epsilon: Small = 1e-6

    @property
    @override
    def start(self) -> float:
        return self.initial

    @override
    def update(
        self,
        values: Floats,
        slots: tuple[Floats, ...],
        gradient: Floats,
        *,
        rate: np.float32,
        counts: Counts,
    ) -> None:
        (squares,) = slots
        squares += gradient * gradient
        gradient /= np.sqrt(squares) + np.float32(self.epsilon)
        gradient *= rate
        values -= gradient


class Adam(Optimizer):
    """Bias-corrected means of gradients and of their squares (Kingma and Ba, 2015)."""

    slots: ClassVar[int] = 2
    counted: ClassVar[bool] = True
    kind: Literal["adam"]
    beta1: Decay = 0.9
    beta2: Decay = 0.999
    epsilon: Small = 1e-8

    @override
    def update(
        self,
        values: Floats,
        slots: tuple[Floats, ...],
        gradient: Floats,
        *,
        rate: np.float32,
        counts: Counts,
    ) -> None:
        mean, squares = slots
        mean *= self.beta1
        mean += np.float32(1 - self.beta1) * gradient
        squares *= self.beta2
        gradient *= gradient
        gradient *= np.float32(1 - self.beta2)
        squares += gradient
        below = np.sqrt(squares / _unbiased(self.beta2, counts))
        below += np.float32(self.epsilon)
        np.divide(mean, below, out=gradient)
        gradient *= rate / _unbiased(self.beta1, counts)
        values -= gradient


def _unbiased(beta: float, counts: Counts) -> Any:
    """1 - beta ** counts, computed in float64."""
    if isinstance(counts, np.ndarray):
        return (1.0 - beta ** counts.astype(np.float64)).astype(np.float32)
    return np.float32(1.0 - beta**counts)


KINDS: dict[str, type[Optimizer]] = {
    "sgd": Sgd,
    "momentum": Momentum,
    "adagrad": Adagrad,
    "adam": Adam,
}


def make(spec: Mapping[str, Any]) -> Optimizer:
    """Creates the optimizer of a specification.

    Raises:
        RefusedError: The kind is unknown, or an option is invalid; the error names it.
    """
    kind = KINDS.get(str(spec.get("kind")))
    if kind is None:
        raise RefusedError(
            422,
            f"optimizer.kind: {spec.get('kind')!r:.60} is not one of {', '.join(KINDS)}",
            "optimizer.kind",
        )
    try:
        return kind.model_validate(dict(spec))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        names = [str(name) for name in first["loc"]]
        if names[:1] == ["schedule"]:  # the next name only repeats the kind
            names = [names[0], *names[2:]]
        where = ".".join(["optimizer", *names])
        message = "no such option" if first["type"] == "extra_forbidden" else first["msg"]
        message = message.removeprefix("Value error, ")
        raise RefusedError(422, f"{where}: {message}", where) from error


def dense(
    optimizer: Optimizer,
    values: Floats,
    slots: Floats,
    gradient: Floats,
    *,
    scale: float,
    count: int,
    norm: float | None = None,
) -> None:
    """Updates a flat vector in place.

    Args:
        optimizer: The optimizer.
        values: Parameters of shape (n,).
        slots: State of shape (`optimizer.slots`, n).
        gradient: Shape (n,); it is not changed.
        scale: Factor of the learning rate.
        count: Number of updates of the vector, including this one.
        norm: Norm of the whole gradient at all servers; needed with `clip_norm`.
    """
    rate = np.float32(optimizer.learning_rate * scale)
    for at in range(0, len(values), _CHUNK):
        part = slice(at, at + _CHUNK)
        part_slots = tuple(slot[part] for slot in slots)
        if optimizer.weight_decay:
            values[part] *= 1 - rate * np.float32(optimizer.weight_decay)
        optimizer.update(
            values[part],
            part_slots,
            optimizer.clipped(gradient[part], norm),
            rate=rate,
            counts=float(count),
        )


def rows(
    optimizer: Optimizer,
    values: Floats,
    slots: Floats,
    gradient: Floats,
    *,
    scale: float,
    norm: float | None = None,
) -> None:
    """Updates rows in place.

    Args:
        optimizer: The optimizer.
        values: Rows of shape (n, dim).
        slots: State of shape (n, `optimizer.width(dim)`).
        gradient: Shape (n, dim); it is not changed.
        scale: Factor of the learning rate.
        norm: Norm of the whole gradient at all servers; needed with `clip_norm`.
    """
    dim = values.shape[1]
    slot_columns = tuple(
        slots[:, place * dim : (place + 1) * dim] for place in range(optimizer.slots)
    )
    counts: Counts = 1.0
    if optimizer.counted:
        slots[:, -1] += 1
        counts = slots[:, -1:]
    rate = np.float32(optimizer.learning_rate * scale)
    if optimizer.weight_decay:
        values *= 1 - rate * np.float32(optimizer.weight_decay)
    gradient = optimizer.clipped(gradient, norm)
    optimizer.update(values, slot_columns, gradient, rate=rate, counts=counts)
