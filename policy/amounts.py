"""Sums and comparisons of resource amounts; a missing resource is 0."""

from collections.abc import Mapping, MutableMapping

from policy.snapshot import Resources


def add(total: MutableMapping[str, int], amounts: Resources) -> None:
    """Adds `amounts` to `total` in place."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def subtract(total: MutableMapping[str, int], amounts: Resources) -> None:
    """Subtracts `amounts` from `total` in place; it may become negative."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) - amount


def within(amounts: Resources, free: Mapping[str, int]) -> bool:
    """Whether every requested amount is free; a request of 0 requests nothing."""
    return all(amount <= free.get(name, 0) for name, amount in amounts.items() if amount > 0)


def times(amounts: Resources, free: Mapping[str, int]) -> int:
    """Number of times that `amounts` fits into `free`; 0 where it requests nothing."""
    return max(
        0,
        min(
            (free.get(name, 0) // amount for name, amount in amounts.items() if amount > 0),
            default=0,
        ),
    )


def dominant(amounts: Resources, total: Resources) -> float:
    """The dominant share: the largest share of `total` over all resources (DRF, Ghodsi 2011).

    "pods" is a number of slots for which nobody competes, so it does not count.
    """
    return max(
        (
            amount / total[name]
            for name, amount in amounts.items()
            if name != "pods" and amount > 0 and total.get(name, 0) > 0
        ),
        default=0.0,
    )
