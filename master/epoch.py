"""The tasks of one epoch: to do, leased or done, in memory that does not grow with their number.

Tasks are leased in a computed order, so it is enough to store the position that was reached, and
the few exceptions: tasks that are leased, returned, dropped, or leased out of order.
"""

from bisect import insort
from dataclasses import dataclass, field

from master.shuffle import TaskOrder
from master.types import Json


@dataclass(slots=True)
class OutstandingTask:
    """A task that was leased and is not done."""

    attempt: int
    holder: str | None = None
    """The trainer that leases it; None while it is to do again."""
    failures: int = 0


@dataclass(slots=True)
class Epoch:
    """One pass over a data set."""

    number: int
    count: int | None
    """Number of tasks; None for a stream."""
    order: TaskOrder
    cursor: int = 0
    """Positions in the order that were leased."""
    outstanding: dict[int, OutstandingTask] = field(default_factory=dict)
    returned: list[int] = field(default_factory=list)
    """Outstanding tasks without a holder, in the epoch's order, whenever they were returned: a
    group whose leaders die one after the other trains them as if nothing had happened."""
    ahead: set[int] = field(default_factory=set)
    """Tasks beyond the cursor that were leased, by another master."""
    dropped: int = 0
    """Number of tasks that failed too often."""

    @property
    def exhausted(self) -> bool:
        """Whether every task was leased."""
        return self.count is not None and self.cursor + len(self.ahead) >= self.count

    @property
    def complete(self) -> bool:
        """Whether every task is done or dropped."""
        return self.exhausted and not self.outstanding

    @property
    def free(self) -> bool:
        """Whether a task can be leased now."""
        return bool(self.returned) or not self.exhausted

    @property
    def leased(self) -> int:
        """Number of tasks that are leased now."""
        return len(self.outstanding) - len(self.returned)

    @property
    def done(self) -> int:
        """Number of tasks that are done."""
        return self.cursor + len(self.ahead) - len(self.outstanding) - self.dropped

    def lease(self, trainer: str, base: int) -> tuple[int, int]:
        """Leases the next task; one must be free.

        Args:
            trainer: The trainer that gets it.
            base: The attempt is greater than this, and than all earlier ones of the task.

        Returns:
            Its index and its attempt.
        """
        if self.returned:
            index = self.returned.pop(0)
            task = self.outstanding[index]
            task.attempt, task.holder = max(task.attempt, base) + 1, trainer
        else:
            index = self._next()
            task = self.outstanding[index] = OutstandingTask(base + 1, trainer)
        return index, task.attempt

    def give_back(self, index: int) -> None:
        """Returns a leased task, which is to do again."""
        self.outstanding[index].holder = None
        insort(self.returned, index, key=self.order.position_of)

    def finish(self, index: int, *, dropped: bool = False) -> None:
        """Marks an outstanding task as done, or as dropped."""
        if self.outstanding.pop(index).holder is None:
            self.returned.remove(index)
        self.dropped += dropped

    def was_leased(self, index: int) -> bool:
        """Whether a task was ever leased."""
        return index in self.ahead or self.order.position_of(index) < self.cursor

    def adopt(self, index: int, attempt: int, trainer: str) -> None:
        """Takes over a lease that another master granted; the task must not be done here."""
        task = self.outstanding.get(index)
        if task is None:
            self.ahead.add(index)
            self.outstanding[index] = OutstandingTask(attempt, trainer)
            return
        if task.holder is None:
            self.returned.remove(index)
        task.attempt, task.holder = attempt, trainer

    def exists(self, index: int) -> bool:
        """Whether a task of this index exists."""
        return index >= 0 and (self.count is None or index < self.count)

    def _next(self) -> int:
        while True:
            index = self.order.number_at(self.cursor)
            self.cursor += 1
            if index not in self.ahead:
                return index
            self.ahead.discard(index)

    def dump(self) -> Json:
        """The epoch as JSON; see `load`."""
        tasks = [[i, t.attempt, t.holder, t.failures] for i, t in self.outstanding.items()]
        return {
            "number": self.number,
            "cursor": self.cursor,
            "outstanding": tasks,
            "returned": list(self.returned),
            "ahead": sorted(self.ahead),
            "dropped": self.dropped,
        }

    @classmethod
    def load(cls, dumped: Json, count: int | None, order: TaskOrder) -> "Epoch":
        """The epoch that `dump` wrote."""
        return cls(
            dumped["number"],
            count,
            order,
            dumped["cursor"],
            {index: OutstandingTask(*fields) for index, *fields in dumped["outstanding"]},
            sorted(dumped["returned"], key=order.position_of),  # older snapshots: another order
            set(dumped["ahead"]),
            dumped["dropped"],
        )
