"""The takeover from a previous master: its trainers, leases and late reports. Pure.

A master that resumes from a snapshot does not know what the previous one did after the snapshot.
The trainers report it: each one joins again, with its leases and its newest acknowledgements.
"""

from collections.abc import Sequence

from master.bounds import capped
from master.commands import Acknowledgement, LeaseEntry
from master.dataset_registry import DatasetRegistry, TaskPlace
from master.leases import Leases
from master.trainers import Trainer, TrainerRegistry
from runtime.call_checks import Json

_GENERATION_ATTEMPTS = 1 << 20
"""Number of attempts reserved for each master: it certainly grants fewer after its last
snapshot."""
MAX_ATTEMPT = 1 << 52
"""The largest attempt of a lease that is taken over. Later attempts of the task are greater, and
trainers can report attempts up to 2^53."""

_MAX_ACKED, _LEAST_ACKED = 16_384, 16
"""Acknowledgements in a snapshot: the limit for all trainers, and the least number for each."""


def for_another_master(state: Json) -> Json:
    """Returns the part of a ledger that another master needs; with a thousand trainers, it fits a ConfigMap.

    It leaves out the newest answers, because another master forgets them. It also leaves out most
    acknowledgements, because trainers report their newest acknowledgements when they join.

    Args:
        state: The result of `Ledger.dump`; it is not changed.
    """
    members = state["members"]
    most = max(_LEAST_ACKED, _MAX_ACKED // max(1, len(members)))
    handed_over = [
        {**member, "answer": None, "acked": dict(list(member["acked"].items())[-most:])}
        for member in members
    ]
    return {**state, "members": handed_over}


class Takeover:
    """The generation of the master, and what trainers report about the time before it."""

    def __init__(
        self, registry: DatasetRegistry, trainers: TrainerRegistry, leases: Leases
    ) -> None:
        """Starts as the first master of a job.

        Args:
            registry: The data sets of the tasks that are reported.
            trainers: All trainers, including the previous master's.
            leases: Adopts leases, and accepts late acknowledgements.
        """
        self._registry = registry
        self._trainers = trainers
        self._leases = leases
        self.generation = 1
        self.settling: set[str] = set()
        """Trainers of the previous master that have not joined this one yet."""
        self.trained_again_records = 0
        """Records that two trainers acknowledged, because two masters leased the task."""

    @property
    def base(self) -> int:
        """The attempts of this master's leases are greater than this."""
        return (self.generation - 1) * _GENERATION_ATTEMPTS

    def begin(self) -> None:
        """Begins a new generation, in which all trainers must join again."""
        self.generation += 1
        self.settling = {trainer.name for trainer in self._trainers}
        for trainer in self._trainers:
            trainer.forget_calls()

    def forget(self, trainer: str) -> None:
        """Stops waiting for a trainer of the previous master."""
        self.settling.discard(trainer)

    def join(
        self, trainer: Trainer, done: Sequence[Acknowledgement], leases: Sequence[LeaseEntry]
    ) -> list[str]:
        """Takes over the acknowledgements and leases of a trainer that joins.

        Args:
            trainer: The trainer.
            done: Its newest acknowledgements, which a previous master may have answered.
            leases: The leases that it has.

        Returns:
            The tasks that it must give up.
        """
        rejoins = trainer.name in self.settling
        self.settling.discard(trainer.name)
        for entry in done:
            self._accept_late(trainer, entry)
        lost = [lease.task for lease in leases if not self._adopt_lease(trainer, lease)]
        if rejoins:
            reported = {lease.task for lease in leases}
            for task in [task for task in trainer.leases if task not in reported]:
                self._leases.end(trainer, task)
        return lost

    def _accept_late(self, trainer: Trainer, entry: Acknowledgement) -> None:
        """Accepts an acknowledgement that a previous master answered, even if the task is leased again."""
        place = self._registry.find_or_open(entry.task)
        if place is not None and place.dataset.rewinds.is_before(entry.attempt):
            return  # the model that contained the task was lost
        if place is None or place.is_done:
            self._note_repeated(trainer, entry)
            return
        self._end_other_lease(trainer, place, entry.task)
        place.epoch.adopt(place.index, entry.attempt, trainer.name)
        self._leases.accept(trainer, entry)

    def _end_other_lease(self, trainer: Trainer, place: TaskPlace, task: str) -> None:
        """Ends the lease of another trainer on a task that was acknowledged."""
        outstanding = place.epoch.outstanding.get(place.index)
        if outstanding is None or outstanding.holder is None or outstanding.holder == trainer.name:
            return
        holder = self._trainers.find(outstanding.holder)
        if holder is not None:
            holder.leases.pop(task, None)
            self._count_again(place.size)

    def _note_repeated(self, trainer: Trainer, entry: Acknowledgement) -> None:
        """Records a late acknowledgement of a task that is already done, under the same or another lease."""
        task, attempt = entry.task, entry.attempt
        if not self._registry.exists(task) or trainer.acked.get(task) == attempt:
            return
        if any(other.acked.get(task, attempt) != attempt for other in self._trainers):
            self._count_again(self._registry.size(task))
        trainer.acknowledge(task, attempt)

    def _count_again(self, records: int) -> None:
        """Counts the records of a task that two trainers have acknowledged."""
        self.trained_again_records = capped(self.trained_again_records + records)

    def _adopt_lease(self, trainer: Trainer, entry: LeaseEntry) -> bool:
        """Adopts a lease that a previous master granted.

        Returns:
            Whether the trainer keeps it.
        """
        task, attempt = entry.task, entry.attempt
        if trainer.leases.get(task) == attempt:
            return True
        place = self._registry.find_or_open(task)
        if place is None or place.is_done or attempt > MAX_ATTEMPT:
            return False
        if place.dataset.rewinds.is_before(attempt):
            return False
        outstanding = place.epoch.outstanding.get(place.index)
        if outstanding is not None and (
            outstanding.holder is not None or outstanding.attempt > attempt
        ):
            return False
        place.epoch.adopt(place.index, attempt, trainer.name)
        trainer.leases[task] = attempt
        return True

    def dump(self) -> Json:
        """Returns the state of the takeover as JSON; see `load`."""
        return {
            "generation": self.generation,
            "trained_again_records": self.trained_again_records,
            "settling": sorted(self.settling),
        }

    def load(self, dumped: Json) -> None:
        """Restores what `dump` wrote."""
        self.generation = dumped["generation"]
        self.trained_again_records = dumped["trained_again_records"]
        self.settling = set(dumped["settling"])
