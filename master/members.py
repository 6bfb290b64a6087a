"""The trainers of a job, as the books know them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

_MOST_ACKED = 1024
"""Acknowledgements of each trainer that are recognised when they come again."""
_MOST_DUMPED = 64
"""Of these, the newest are in snapshots: more than one call tells."""


@dataclass(slots=True)
class Trainer:
    """One trainer that has joined and has not left."""

    name: str
    incarnation: str
    held: dict[str, int] = field(default_factory=dict)
    """Task -> attempt."""
    call: int = 0
    answer: Json | None = None
    """To the newest call for work, in case it is asked again."""
    records: int = 0
    tasks: int = 0
    steps: int = 0
    failures: int = 0
    acked: dict[str, int] = field(default_factory=dict)
    """Task -> attempt of the newest ones."""

    def acknowledge(self, task: str, attempt: int) -> None:
        """Remembers that it was accepted."""
        self.acked[task] = attempt
        if len(self.acked) > _MOST_ACKED:
            del self.acked[next(iter(self.acked))]

    def forget_calls(self) -> None:
        """Another master answers from now on."""
        self.call, self.answer = 0, None


class Members:
    """By name, in the order in which they joined."""

    def __init__(self) -> None:
        self._by_name: dict[str, Trainer] = {}

    def __iter__(self) -> Iterator[Trainer]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Trainer | None:
        """The trainer of that name."""
        return self._by_name.get(name)

    def add(self, name: str, incarnation: str) -> Trainer:
        """A new incarnation; one before it is forgotten."""
        self._by_name.pop(name, None)
        found = self._by_name[name] = Trainer(name, incarnation)
        return found

    def remove(self, name: str) -> None:
        """It left."""
        self._by_name.pop(name, None)

    def dump(self) -> list[Json]:
        """As JSON."""
        return [
            {
                "name": one.name,
                "incarnation": one.incarnation,
                "held": one.held,
                "call": one.call,
                "answer": one.answer,
                "acked": dict(list(one.acked.items())[-_MOST_DUMPED:]),
                "counts": [one.records, one.tasks, one.steps, one.failures],
            }
            for one in self
        ]

    @classmethod
    def load(cls, dumped: list[Json]) -> "Members":
        """Those that `dump` wrote."""
        found = cls()
        for one in dumped:
            trainer = found._by_name[one["name"]] = Trainer(
                one["name"],
                one["incarnation"],
                one["held"],
                one["call"],
                one["answer"],
                *one["counts"],
            )
            trainer.acked = one["acked"]
        return found
