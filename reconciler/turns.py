"""Orders jobs so that namespaces take turns when one tick cannot handle all of them. Pure."""

from collections import Counter
from collections.abc import Iterable
from operator import itemgetter
from typing import Protocol, TypeVar


class Namespaced(Protocol):
    """An object with a namespace."""

    @property
    def namespace(self) -> str:
        """The object's namespace."""


T = TypeVar("T", bound=Namespaced)


def in_turns(jobs: Iterable[T]) -> list[T]:
    """Returns the jobs in turns: first each namespace's first job, then each one's second, and so on.

    Within a turn the given order is kept. A namespace with many jobs thus does not delay the others.
    """
    seen = Counter[str]()
    turns: list[tuple[int, T]] = []
    for job in jobs:
        turns.append((seen[job.namespace], job))
        seen[job.namespace] += 1
    return [job for _, job in sorted(turns, key=itemgetter(0))]
