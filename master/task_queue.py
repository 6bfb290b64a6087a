"""Which tasks are leased next, and when there are no more. Pure."""

from collections.abc import Iterator

from master.bounds import capped
from master.commands import More, Work
from master.dataset import EVALUATION, EXPORT, TRAINING, Dataset
from master.dataset_registry import DatasetRegistry
from master.types import Json

_PRIORITY = {EVALUATION: 0, EXPORT: 2}
"""Evaluations are leased first, because trainers wait for their results; the export last."""


class TaskQueue:
    """The free tasks of all data sets, and the steps of all trainers, with which training ends."""

    def __init__(self, registry: DatasetRegistry, max_steps: int | None) -> None:
        """Makes a queue of the tasks of all data sets.

        Args:
            registry: The data sets.
            max_steps: Steps of all trainers together after which training ends.
        """
        self._registry = registry
        self._max_steps = max_steps
        self.steps = 0

    @property
    def complete(self) -> bool:
        """Whether all data sets are done, as far as there are steps for them.

        A data set that waits for its first evaluation request does not make a job complete.
        """
        datasets = self._registry.by_name.values()
        any_epochs = any(dataset.epochs for dataset in datasets)
        return any_epochs and all(self._is_over(dataset) for dataset in datasets)

    @property
    def _enough(self) -> bool:
        """Whether training has done its steps, whatever data is left."""
        return self._max_steps is not None and self.steps >= self._max_steps

    def add_steps(self, steps: int) -> None:
        """Counts steps of a trainer."""
        self.steps = capped(self.steps + steps)

    def next(self, call: Work | More) -> Dataset | None:
        """The data set of the next free task; None where there is none.

        Args:
            call: The call, with the kinds and names of the data sets that it asks for.
        """
        for dataset in self._scope(call):
            if dataset.is_free(call.trainer) and self._may_lease(dataset):
                return dataset
        return None

    def is_over(self, call: Work | More) -> bool:
        """Whether a call will not get any more tasks, however long it waits.

        A data set that nobody has described yet may get tasks.
        """
        described = self._registry.by_name
        unknown = not described or not described.keys() >= set(call.datasets or ())
        if unknown and not self.complete:
            return False
        return all(
            self._is_over(dataset) or not self._may_wait(dataset) for dataset in self._scope(call)
        )

    def _scope(self, call: Work | More) -> Iterator[Dataset]:
        """The data sets that a call asks for, in the order in which they are leased."""
        kinds, names = call.kinds, call.datasets
        datasets = [
            dataset
            for dataset in self._registry.by_name.values()
            if (kinds is None or dataset.kind in kinds) and (names is None or dataset.name in names)
        ]
        return iter(sorted(datasets, key=lambda dataset: _PRIORITY.get(dataset.kind, 1)))

    def _may_lease(self, dataset: Dataset) -> bool:
        """Training ends with its steps; the export waits for all other data sets."""
        if dataset.kind == EXPORT:
            datasets = self._registry.by_name.values()
            return all(self._is_over(other) for other in datasets if other.kind != EXPORT)
        return dataset.kind != TRAINING or not self._enough

    def _may_wait(self, dataset: Dataset) -> bool:
        """Whether tasks may become free later: not of training that has done its steps."""
        return dataset.kind != TRAINING or not self._enough

    def _is_over(self, dataset: Dataset) -> bool:
        """Whether no task of a data set is leased, and none will be."""
        ended = self._enough and dataset.kind == TRAINING and not dataset.leased
        return ended or dataset.complete

    def dump(self) -> Json:
        """The steps as JSON; see `load`."""
        return {"steps": self.steps}

    def load(self, dumped: Json) -> None:
        """Restores what `dump` wrote."""
        self.steps = dumped["steps"]
