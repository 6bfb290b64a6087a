"""The trainers of a job in the ledger. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from master.commands import Join
from runtime.call_checks import Json

_MAX_ACKED = 1024
"""Number of a trainer's newest acknowledgements that are recognised if they are repeated."""
_MAX_DUMPED = 64
"""Number of a trainer's newest acknowledgements in a snapshot; one call reports fewer."""


@dataclass(slots=True)
class Trainer:
    """A trainer that has joined and has not left."""

    name: str
    incarnation: str
    leases: dict[str, int] = field(default_factory=dict)
    """Leased task -> attempt."""
    call: int = 0
    """Number of the trainer's newest call for work."""
    answer: Json | None = None
    """The answer to that call, in case the call is repeated."""
    records: int = 0
    tasks: int = 0
    steps: int = 0
    failures: int = 0
    acked: dict[str, int] = field(default_factory=dict)
    """Acknowledged task -> attempt, for the trainer's newest acknowledgements."""

    def acknowledge(self, task: str, attempt: int) -> None:
        """Records an accepted acknowledgement."""
        self.acked[task] = attempt
        if len(self.acked) > _MAX_ACKED:
            del self.acked[next(iter(self.acked))]

    def forget_calls(self) -> None:
        """Forgets the newest call and its answer, because another master answers from now on."""
        self.call, self.answer = 0, None


class TrainerRegistry:
    """All trainers that have joined, by name, in the order of joining."""

    def __init__(self) -> None:
        self._by_name: dict[str, Trainer] = {}

    def __iter__(self) -> Iterator[Trainer]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Trainer | None:
        """Returns the trainer with a name; None if it has not joined."""
        return self._by_name.get(name)

    def add(self, name: str, incarnation: str) -> Trainer:
        """Adds a new incarnation; an older one of the same name is removed."""
        self._by_name.pop(name, None)
        trainer = self._by_name[name] = Trainer(name, incarnation)
        return trainer

    def remove(self, name: str) -> None:
        """Removes a trainer, if it has joined."""
        self._by_name.pop(name, None)

    def dump(self) -> list[Json]:
        """Returns the trainers as JSON."""
        return [
            {
                "name": trainer.name,
                "incarnation": trainer.incarnation,
                "held": dict(trainer.leases),
                "call": trainer.call,
                "answer": trainer.answer,
                "acked": dict(list(trainer.acked.items())[-_MAX_DUMPED:]),
                "counts": [trainer.records, trainer.tasks, trainer.steps, trainer.failures],
            }
            for trainer in self
        ]

    def load(self, dumped: list[Json]) -> None:
        """Restores what `dump` wrote, except leases, which `Leases.load` restores from the epochs."""
        self._by_name = {}
        for entry in dumped:
            records, tasks, steps, failures = entry["counts"]
            self._by_name[entry["name"]] = Trainer(
                entry["name"],
                entry["incarnation"],
                call=entry["call"],
                answer=entry["answer"],
                records=records,
                tasks=tasks,
                steps=steps,
                failures=failures,
                acked=entry["acked"],
            )


def lost_with_process(join: Join, trainer: Trainer) -> dict[str, int]:
    """Returns the trained records that are lost with a replaced process, by task.

    Tasks that the next process of the trainer holds or acknowledges are not lost.
    """
    reported = {lease.task: lease.attempt for lease in join.held}
    reported |= {done.task: done.attempt for done in join.done}
    return {t: n for t, n in join.trained.items() if trainer.leases.get(t) != reported.get(t)}
