"""The data sets of a job, and the lookup of tasks by name. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from master.commands import Lead
from master.dataset import EVALUATION, Dataset
from master.epoch import Epoch
from runtime.call_checks import Json, RefusedError


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """The place of a task in an open epoch of a data set."""

    dataset: Dataset
    epoch: Epoch
    index: int

    @property
    def is_done(self) -> bool:
        """Whether the task is done or dropped."""
        return self.index not in self.epoch.outstanding and self.epoch.was_leased(self.index)

    @property
    def size(self) -> int:
        """The number of records of the task."""
        return self.dataset.span(self.index).size


class DatasetRegistry:
    """All data sets of a job, in the order in which they were described."""

    def __init__(self) -> None:
        self.by_name: dict[str, Dataset] = {}

    def describe(self, name: str, shape: Json) -> Json:
        """Adds a data set, or compares a repeated description with the first one.

        Returns:
            The description.

        Raises:
            RefusedError: The descriptions differ; the error names the field.
        """
        dataset = self.by_name.get(name)
        if dataset is None:
            dataset = self.by_name[name] = Dataset(name, shape)
        order = dataset.shape.get("record_order")
        if shape.get("record_order") != order:  # checked first: it affects other fields
            raise RefusedError(
                409,
                f"the order of records of {name} cannot change within a job: it was described with "
                f"record_order {order!r:.60}, this trainer has {shape.get('record_order')!r:.60}: use the "
                "files and the release of EDL's SDK with which it began, or start another job",
                "record_order",
            )
        for key, value in dataset.shape.items():
            if shape.get(key) != value:
                raise RefusedError(
                    409,
                    f"{name} is described already, with {key} {value!r:.60}: use the same "
                    "description, or give the other data set another name",
                    key,
                )
        return {"name": name, **dataset.shape}

    def evaluate(self, name: str, model_version: int) -> None:
        """Queues an evaluation of a model version.

        Raises:
            RefusedError: No data set for evaluation has that name.
        """
        dataset = self.by_name.get(name)
        if dataset is None or dataset.kind != EVALUATION:
            raise RefusedError(
                404,
                f"{name!r:.60} is not a data set for evaluation: describe it with "
                "kind evaluation first",
                "dataset",
            )
        dataset.add_evaluation(model_version)

    def lead(self, incarnation: str, lead: Lead) -> int:
        """Begins or resumes a leader's term, and returns it.

        Args:
            incarnation: The process.
            lead: The data set, the term of the leader's model, and whether a new term begins.

        Raises:
            RefusedError: The model is not the newest, or another process leads.
        """
        dataset = self.by_name.get(lead.dataset)
        if dataset is None:
            raise RefusedError(
                404,
                f"data set {lead.dataset!r:.60} does not exist: describe it first",
                "dataset",
            )
        if lead.begins:
            return dataset.terms.begin(incarnation, lead.term)
        return dataset.terms.resume(incarnation, lead.term)

    def find(self, task: str) -> TaskPlace | None:
        """Returns the place of a task; None unless its epoch is open."""
        name, _, suffix = task.partition("/")
        number, _, index = suffix.partition("/")
        dataset = self.by_name.get(name)
        if dataset is None or not (number.isdecimal() and index.isdecimal()):
            return None
        epoch = dataset.open.get(int(number))
        if epoch is None or not epoch.exists(int(index)):
            return None
        return TaskPlace(dataset, epoch, int(index))

    def find_or_open(self, task: str) -> TaskPlace | None:
        """Returns the place of a task, and begins epochs that another master may have begun."""
        if not self.exists(task):
            return None
        name, number, _ = task.split("/")
        self.by_name[name].ensure_open(int(number))
        return self.find(task)

    def exists(self, task: str) -> bool:
        """Returns whether a data set has a task, in any epoch, begun or not."""
        name, _, suffix = task.partition("/")
        number, _, index = suffix.partition("/")
        dataset = self.by_name.get(name)
        if dataset is None or not (number.isdecimal() and index.isdecimal()):
            return False
        return int(number) < dataset.epochs and dataset.partitioning.has(int(index))

    def size(self, task: str) -> int:
        """Returns the number of records of a task that exists, in any epoch."""
        name, _, index = task.split("/")
        return self.by_name[name].span(int(index)).size

    def dump(self) -> Json:
        """Returns the data sets as JSON; see `load`."""
        return {"datasets": {name: dataset.dump() for name, dataset in self.by_name.items()}}

    def load(self, dumped: Json) -> None:
        """Restores what `dump` wrote."""
        self.by_name = {
            name: Dataset.load(name, dataset, dumped["steps"])
            for name, dataset in dumped["datasets"].items()
        }


def kind_of(datasets: Mapping[str, Dataset], task: str) -> str:
    """Returns the kind of a task's data set; "" if there is no such data set."""
    dataset = datasets.get(task.partition("/")[0])
    return "" if dataset is None else dataset.kind
