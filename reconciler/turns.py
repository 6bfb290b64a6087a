"""The order in which jobs have their turn where one tick does not do all: namespace after namespace. Pure."""

from collections import Counter
from collections.abc import Iterable
from operator import itemgetter
from typing import Protocol, TypeVar


class Namespaced(Protocol):
    """An object of a namespace."""

    @property
    def namespace(self) -> str:
        """Its namespace."""


T = TypeVar("T", bound=Namespaced)


def in_turns(jobs: Iterable[T]) -> list[T]:
    """The jobs in such an order that a namespace with many comes no more often than others.

    First the first one of each namespace, then the second ones; else in the order given.
    """
    seen = Counter[str]()
    turns: list[tuple[int, T]] = []
    for job in jobs:
        turns.append((seen[job.namespace], job))
        seen[job.namespace] += 1
    return [job for _, job in sorted(turns, key=itemgetter(0))]
