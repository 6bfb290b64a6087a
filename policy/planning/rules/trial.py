"""A trial: places the pods of a gang one by one to check whether all fit, then undoes the placements."""

from types import TracebackType
from typing import Self

from policy.cluster.snapshot import Constraints, Job, Resources
from policy.planning.book import Book
from policy.planning.rules import placements
from policy.planning.rules.placements import Placement


class Trial:
    """Reservations of capacity and quota inside a `with` block, at whose end they are undone in the book."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._placed: list[Placement] = []
        self._counted: list[tuple[Job, int, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for placement in self._placed:
            self._book.capacity.unreserve(placement.node, placement.requests)
        for job, trainers, servers in self._counted:
            self._book.quotas.unreserve(job, trainers, servers)

    def place(
        self,
        requests: Resources,
        constraints: Constraints,
        closed: frozenset[str],
        *,
        pooled: bool,
    ) -> Placement | None:
        """Places one pod; returns None if it fits on no node."""
        placement = placements.find(self._book, requests, constraints, closed, pooled=pooled)
        if placement is not None:
            self._book.capacity.reserve(placement.node, requests)
            self._placed.append(placement)
        return placement

    def count(self, job: Job, trainers: int, servers: int) -> None:
        """Counts a job's trainers and parameter servers in the quotas that cover the job."""
        self._book.quotas.reserve(job, trainers, servers)
        self._counted.append((job, trainers, servers))
