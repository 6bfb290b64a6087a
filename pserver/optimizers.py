"""What a gradient does to parameters: sgd, momentum, adagrad, adam; dense, and row by row.

Rows are lazy: only those that a push names change, and their momenta with them. Adam counts the
updates of each row by itself, so the first update of a rare row is as large as any.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pserver.errors import RefusedError

Floats = NDArray[np.float32]
Counts = Floats | float
"""How often what is updated has been, this time included; a column where rows differ."""

_CHUNK = 1 << 16
"""Numbers at a time: what an update touches stays in the processor's cache."""

Rate = Annotated[float, Field(gt=0, lt=1e6)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Small = Annotated[float, Field(gt=0, lt=1)]


class Optimizer(BaseModel):
    """Base of all; `slots` are arrays of the parameter's own shape."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    slots: ClassVar[int] = 0
    counted: ClassVar[bool] = False
    """Whether a row needs to know how often it was updated."""

    learning_rate: Rate

    @property
    def start(self) -> float:
        """What slots begin with."""
        return 0.0

    def update(
        self, values: Floats, slots: tuple[Floats, ...], gradient: Floats, **how: Any
    ) -> None:
        """Changes values and slots in place; the gradient may be overwritten.

        Args:
            values: Parameters.
            slots: As many as `slots` says, shaped like the values.
            gradient: Likewise.
            **how: `rate`, the learning rate with all its factors; `counts`.
        """
        raise NotImplementedError

    def width(self, dim: int) -> int:
        """Numbers that a row's slots take."""
        return dim * self.slots + self.counted


class Sgd(Optimizer):
    """Values go down the gradient."""

    kind: Literal["sgd"]

    def update(
        self, values: Floats, slots: tuple[Floats, ...], gradient: Floats, **how: Any
    ) -> None:
        """As in `Optimizer`."""
        del slots
        gradient *= how["rate"]
        values -= gradient


class Momentum(Optimizer):
    """Sgd with a velocity (Sutskever et al., 2013, for the look ahead of Nesterov)."""

    slots: ClassVar[int] = 1
    kind: Literal["momentum"]
    momentum: Decay = 0.9
    nesterov: bool = False

    def update(
        self, values: Floats, slots: tuple[Floats, ...], gradient: Floats, **how: Any
    ) -> None:
        """As in `Optimizer`."""
        (speed,) = slots
        speed *= self.momentum
        speed += gradient
        if self.nesterov:
            gradient += self.momentum * speed
        else:
            gradient[...] = speed
        gradient *= how["rate"]
        values -= gradient


class Adagrad(Optimizer):
    """A learning rate for each number, by the squares of its gradients (Duchi et al., 2011)."""

    slots: ClassVar[int] = 1
    kind: Literal["adagrad"]
    initial: Annotated[float, Field(ge=0, lt=1e6)] = 0.0
    epsilon: Small = 1e-6

    @property
    def start(self) -> float:
        """As in `Optimizer`."""
        return self.initial

    def update(
        self, values: Floats, slots: tuple[Floats, ...], gradient: Floats, **how: Any
    ) -> None:
        """As in `Optimizer`."""
        (squares,) = slots
        squares += gradient * gradient
        gradient /= np.sqrt(squares) + np.float32(self.epsilon)
        gradient *= how["rate"]
        values -= gradient


class Adam(Optimizer):
    """Means of gradients and of their squares, without their bias (Kingma and Ba, 2015)."""

    slots: ClassVar[int] = 2
    counted: ClassVar[bool] = True
    kind: Literal["adam"]
    beta1: Decay = 0.9
    beta2: Decay = 0.999
    epsilon: Small = 1e-8

    def update(
        self, values: Floats, slots: tuple[Floats, ...], gradient: Floats, **how: Any
    ) -> None:
        """As in `Optimizer`."""
        mean, squares = slots
        mean *= self.beta1
        mean += np.float32(1 - self.beta1) * gradient
        squares *= self.beta2
        gradient *= gradient
        gradient *= np.float32(1 - self.beta2)
        squares += gradient
        counts: Counts = how["counts"]
        below = np.sqrt(squares / _unbiased(self.beta2, counts))
        below += np.float32(self.epsilon)
        np.divide(mean, below, out=gradient)
        gradient *= how["rate"] / _unbiased(self.beta1, counts)
        values -= gradient


def _unbiased(beta: float, counts: Counts) -> Any:
    """1 - beta ** counts, in float64 where it is one number for all."""
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
    """The optimizer that a job asks for.

    Raises:
        RefusedError: There is no such kind, or an option is wrong; names it.
    """
    kind = KINDS.get(str(spec.get("kind")))
    if kind is None:
        raise RefusedError(
            422,
            f"optimizer.kind: {spec.get('kind')!r:.60} is none of {', '.join(KINDS)}",
            "optimizer.kind",
        )
    try:
        return kind.model_validate(dict(spec))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(["optimizer", *map(str, first["loc"])])
        message = "no such option" if first["type"] == "extra_forbidden" else first["msg"]
        raise RefusedError(422, f"{where}: {message}", where) from error


def dense(
    optimizer: Optimizer,
    values: Floats,
    slots: Floats,
    gradient: Floats,
    *,
    scale: float,
    count: int,
) -> None:
    """Updates a flat vector in place.

    Args:
        optimizer: What to do.
        values: Parameters, flat.
        slots: A row for each slot, as long as the values.
        gradient: As long as the values; it stays as it is.
        scale: Factor of the learning rate.
        count: How often the vector has been updated, this time included.
    """
    rate = np.float32(optimizer.learning_rate * scale)
    for at in range(0, len(values), _CHUNK):
        part = slice(at, at + _CHUNK)
        kept = tuple(slot[part] for slot in slots)
        optimizer.update(values[part], kept, gradient[part].copy(), rate=rate, counts=float(count))


def rows(
    optimizer: Optimizer, values: Floats, slots: Floats, gradient: Floats, *, scale: float
) -> None:
    """Updates rows in place.

    Args:
        optimizer: What to do.
        values: A row for each parameter row.
        slots: As wide as `Optimizer.width` says.
        gradient: Shaped like the values; it stays as it is.
        scale: Factor of the learning rate.
    """
    dim = values.shape[1]
    kept = tuple(slots[:, place * dim : (place + 1) * dim] for place in range(optimizer.slots))
    counts: Counts = 1.0
    if optimizer.counted:
        slots[:, -1] += 1
        counts = slots[:, -1:]
    rate = np.float32(optimizer.learning_rate * scale)
    optimizer.update(values, kept, gradient.copy(), rate=rate, counts=counts)
