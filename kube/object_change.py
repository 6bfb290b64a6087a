"""A change of a watched object, as queued by the watches. Pure."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from policy.cluster.snapshot import Job, Node, Pod

T = TypeVar("T", Pod, Node, Job)


@dataclass(frozen=True, slots=True)
class ObjectChange(Generic[T]):
    """The combined change of one object since the queue was last emptied."""

    last: T | None
    """The record before the change; None for a new object."""
    new: T | None
    """The current record; None for a deleted object."""
    seen_s: float = 0.0
    """When the change arrived, by this process's clock."""
