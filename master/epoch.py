"""The tasks of one epoch: pending, leased or done. Memory use does not grow with the number of tasks. Pure.

Tasks are leased in a computed order. So an epoch stores only the position that it has reached and the
few exceptions: tasks that are leased, returned, dropped, or leased out of order.
"""

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from master.partitioning import TaskOrder
from runtime.call_checks import Json


@dataclass(slots=True)
class OutstandingTask:
    """A task that was leased and is not done."""

    attempt: int
    holder: str | None = None
    """The trainer that leases it; None while it waits to be leased again."""
    failures: int = 0
    """Failures that count against the task's failure budget."""
    tries: int = 0
    """All failures, including those during an outage; the task's pause grows with this number."""
    failed_by: str | None = None
    """The trainer on which the task failed last, while only other trainers may lease the task."""
    trained: int = 0
    """Number of records, from the first one on, that are trained and counted; only the rest is
    leased."""


@dataclass(slots=True)
class Epoch:
    """One pass over a data set."""

    number: int
    count: int | None
    """Number of tasks; None for a stream."""
    order: TaskOrder
    cursor: int = 0
    """The first position in the order that was not leased."""
    outstanding: dict[int, OutstandingTask] = field(default_factory=dict)
    returned: list[int] = field(default_factory=list)
    """Outstanding tasks without a holder, in the epoch's order. This order keeps a group's training
    order the same even if its leaders die one after the other."""
    paused: list[int] = field(default_factory=list)
    """Outstanding tasks that failed and are not leased until `resume`."""
    retries: list[int] = field(default_factory=list)
    """Outstanding tasks that failed and may be leased again after all others."""
    ahead: set[int] = field(default_factory=set)
    """Tasks beyond the cursor that another master leased."""
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
    def leased(self) -> int:
        """Number of tasks that are leased now."""
        return len(self.outstanding) - len(self.returned) - self.failing

    @property
    def failing(self) -> int:
        """Number of tasks that failed and are not leased."""
        return len(self.paused) + len(self.retries)

    @property
    def done(self) -> int:
        """Number of tasks that are done."""
        return self.cursor + len(self.ahead) - len(self.outstanding) - self.dropped

    def is_free(self, trainer: str, *, fresh: bool = True) -> bool:
        """Returns whether a task can be leased to a trainer now.

        Args:
            trainer: The trainer.
            fresh: Whether tasks that were never leased count.
        """
        if self.returned or (fresh and not self.exhausted):
            return True
        return any(True for _ in self._retries_for(trainer))

    def lease(self, trainer: str, base: int, *, fresh: bool = True) -> tuple[int, int]:
        """Leases the next task: returned tasks first, failed ones last. A task must be free.

        Args:
            trainer: The trainer that gets the lease.
            base: The lease's attempt is greater than this, and than all earlier attempts of the
                task.
            fresh: Whether tasks that were never leased may be leased.

        Returns:
            The index of the task, and its attempt.
        """
        if self.returned:
            index = self.returned.pop(0)
        elif fresh and not self.exhausted:
            index = self._next()
            self.outstanding[index] = OutstandingTask(base)
        else:
            index = next(self._retries_for(trainer))
            self.retries.remove(index)
        task = self.outstanding[index]
        task.attempt, task.holder = max(task.attempt, base) + 1, trainer
        return index, task.attempt

    def give_back(self, index: int) -> None:
        """Ends the lease of a task, which becomes free again."""
        self.outstanding[index].holder = None
        insort(self.returned, index, key=self.order.position_of)

    def pause(self, index: int) -> None:
        """Ends the lease of a failed task, which stays paused until `resume`."""
        task = self.outstanding[index]
        task.holder, task.failed_by = None, task.holder
        self.paused.append(index)

    def resume(self, index: int, *, anyone: bool, first: bool) -> None:
        """Makes a paused task free again.

        Args:
            index: The task.
            anyone: Whether the trainer on which the task failed may lease it, too.
            first: Whether the task is leased before tasks that were never leased. Streams need
                this, because they always have new tasks.
        """
        self.paused.remove(index)
        if anyone:
            self.allow_anyone(index)
        if first:
            insort(self.returned, index, key=self.order.position_of)
        else:
            self.retries.append(index)

    def allow_anyone(self, index: int) -> None:
        """Lets the trainer on which the task failed lease it again."""
        self.outstanding[index].failed_by = None

    def finish(self, index: int, *, dropped: bool = False) -> None:
        """Marks an outstanding task as done or dropped."""
        if self.outstanding.pop(index).holder is None:
            self._unlist(index)
        self.dropped += dropped

    def was_leased(self, index: int) -> bool:
        """Returns whether a task was ever leased."""
        return index in self.ahead or self.order.position_of(index) < self.cursor

    def adopt(self, index: int, attempt: int, trainer: str) -> None:
        """Takes over another master's lease of a task that is not done here."""
        task = self.outstanding.get(index)
        if task is None:
            self.ahead.add(index)
            self.outstanding[index] = OutstandingTask(attempt, trainer)
            return
        if task.holder is None:
            self._unlist(index)
        task.attempt, task.holder = attempt, trainer

    def exists(self, index: int) -> bool:
        """Returns whether a task of this index exists."""
        return index >= 0 and (self.count is None or index < self.count)

    def restore(self, index: int, trained: int, size: int) -> tuple[int, bool]:
        """Records, during a rewind, how much of a task the model has trained; no task is leased then.

        Args:
            index: The task.
            trained: Number of its first records that the model has trained.
            size: Number of its records.

        Returns:
            How many of these records were not counted as trained before, and whether the task is
            done now.
        """
        if not self.was_leased(index):
            self.ahead.add(index)
            self._reopen(index, 0)
        task = self.outstanding.get(index)
        if task is None:
            return 0, False
        added = max(0, trained - task.trained)
        task.trained += added
        done = task.trained >= size
        if done:
            self.finish(index)
        return added, done

    def _reopen(self, index: int, trained: int) -> None:
        """Makes a task free during a rewind, without a lease."""
        self.outstanding[index] = OutstandingTask(0, trained=trained)
        insort(self.returned, index, key=self.order.position_of)

    def position(self) -> Json:
        """Returns the trained part of the epoch, for the position of a data set; see `at`."""
        return {
            "number": self.number,
            "cursor": self.cursor,
            "todo": [[index, task.trained] for index, task in self.outstanding.items()],
            "ahead": sorted(self.ahead),
            "dropped": self.dropped,
        }

    @classmethod
    def at(cls, position: Json, count: int | None, order: TaskOrder) -> "Epoch":
        """Returns the epoch at a position, without leases."""
        epoch = cls(position["number"], count, order, position["cursor"])
        epoch.dropped = position["dropped"]
        epoch.ahead = {i for i in position["ahead"] if order.position_of(i) >= epoch.cursor}
        for index, trained in position["todo"]:
            if epoch.was_leased(index):
                epoch._reopen(index, trained)
        return epoch

    def _retries_for(self, trainer: str) -> Iterator[int]:
        """Returns the failed tasks that a trainer may lease."""
        return (i for i in self.retries if self.outstanding[i].failed_by != trainer)

    def _unlist(self, index: int) -> None:
        """Removes a task without a holder from its list."""
        for tasks in (self.returned, self.paused, self.retries):
            if index in tasks:
                tasks.remove(index)

    def _next(self) -> int:
        while True:
            index = self.order.number_at(self.cursor)
            self.cursor += 1
            if index not in self.ahead:
                return index
            self.ahead.discard(index)

    def dump(self) -> Json:
        """Returns the epoch as JSON; see `load`.

        Failing tasks are also listed as returned: after a downgrade, an earlier version knows only
        that list and leases them at once.
        """
        outstanding = self.outstanding.items()
        tries = [[i, task.tries, task.failed_by] for i, task in outstanding if task.tries]
        parts = [[i, task.trained] for i, task in outstanding if task.trained]
        return {
            "number": self.number,
            "cursor": self.cursor,
            "outstanding": [[i, t.attempt, t.holder, t.failures] for i, t in outstanding],
            "returned": [*self.returned, *self.paused, *self.retries],
            **({"tries": tries} if tries else {}),
            **({"parts": parts} if parts else {}),
            "ahead": sorted(self.ahead),
            "dropped": self.dropped,
            **({"paused": list(self.paused)} if self.paused else {}),
            **({"retries": list(self.retries)} if self.retries else {}),
        }

    @classmethod
    def load(cls, dumped: Json, count: int | None, order: TaskOrder) -> "Epoch":
        """Returns the epoch that `dump` wrote."""
        outstanding = {
            index: OutstandingTask(attempt, holder, failures)
            for index, attempt, holder, failures in dumped["outstanding"]
        }
        for index, tries, failed_by in dumped.get("tries", ()):
            outstanding[index].tries, outstanding[index].failed_by = tries, failed_by
        for index, trained in dumped.get("parts", ()):
            outstanding[index].trained = trained
        paused, retries = list(dumped.get("paused", ())), list(dumped.get("retries", ()))
        returned = set(dumped["returned"]).difference(paused, retries)
        return cls(
            dumped["number"],
            count,
            order,
            dumped["cursor"],
            outstanding,
            sorted(returned, key=order.position_of),  # older snapshots have another order
            paused,
            retries,
            ahead=set(dumped["ahead"]),
            dropped=dumped["dropped"],
        )
