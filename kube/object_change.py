"""A change of one watched object, as the watches queue it. Pure."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from policy.cluster.snapshot import Job, Node, Pod

T = TypeVar("T", Pod, Node, Job)


@dataclass(frozen=True, slots=True)
class ObjectChange(Generic[T]):
    """The newest change of one object since the last drain."""

    last: T | None
    """The newest record before `new`; None for a new object."""
    new: T | None
    """The current record; None if the object is deleted."""
    seen_s: float = 0.0
    """When the change arrived, by the own clock."""
