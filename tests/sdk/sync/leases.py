"""Leases of a small data set, for tests of plans and books."""

from edl.sync.shares import Plan, Span
from edl.wire import Lease


def lease(index: int = 0, size: int = 10, *, epoch: int = 0, attempt: int = 1) -> Lease:
    """The task of this index: records [index * size, (index + 1) * size)."""
    name = f"points/{epoch}/{index}"
    begin = index * size
    return Lease(name, attempt, "training", "points", epoch, begin, begin + size, None, 60.0)


def plan(name: str, *spans: tuple[Lease, int, int]) -> Plan:
    """Of such parts: lease, first record, number of records."""
    return Plan(name, tuple(Span(*one) for one in spans))
