"""The tasks of one epoch: to do, leased or done, in memory that does not grow with their number.

Tasks come in a computed order, so it is enough to remember how far that was handed out, and the
few that are different: leased now, come back, dropped, or done out of turn.
"""

from bisect import insort
from dataclasses import dataclass, field
from typing import Any

from master.shuffle import Order

Json = dict[str, Any]


@dataclass(slots=True)
class Outstanding:
    """A task that was handed out and is not done."""

    attempt: int
    holder: str | None = None
    """Trainer that has it leased; None while it is to do again."""
    failures: int = 0


@dataclass(slots=True)
class Epoch:
    """One pass over a data set."""

    number: int
    count: int | None
    """Tasks; None for a stream."""
    order: Order
    cursor: int = 0
    """Places in the order that were handed out."""
    outstanding: dict[int, Outstanding] = field(default_factory=dict)
    returned: list[int] = field(default_factory=list)
    """Outstanding tasks that nobody has, in the epoch's order, whenever they came back: a group
    whose leaders die one after the other trains them as if nothing had happened."""
    ahead: set[int] = field(default_factory=set)
    """Tasks that were handed out although the cursor has not come to them: by another master."""
    dropped: int = 0
    """Tasks that failed too often."""

    @property
    def exhausted(self) -> bool:
        """Whether every task was handed out."""
        return self.count is not None and self.cursor + len(self.ahead) >= self.count

    @property
    def complete(self) -> bool:
        """Whether every task is done or dropped."""
        return self.exhausted and not self.outstanding

    @property
    def free(self) -> bool:
        """Whether somebody could lease a task now."""
        return bool(self.returned) or not self.exhausted

    @property
    def leased(self) -> int:
        """Number of tasks that somebody has."""
        return len(self.outstanding) - len(self.returned)

    @property
    def done(self) -> int:
        """Number of tasks that are done."""
        return self.cursor + len(self.ahead) - len(self.outstanding) - self.dropped

    def lease(self, trainer: str, base: int) -> tuple[int, int]:
        """Hands out the next task; there must be one.

        Args:
            trainer: Who gets it.
            base: Attempts are greater than this, and than all before of the task.

        Returns:
            Its index and its attempt.
        """
        if self.returned:
            index = self.returned.pop(0)
            task = self.outstanding[index]
            task.attempt, task.holder = max(task.attempt, base) + 1, trainer
        else:
            index = self._next()
            task = self.outstanding[index] = Outstanding(base + 1, trainer)
        return index, task.attempt

    def give_back(self, index: int) -> None:
        """A leased task is to do again."""
        self.outstanding[index].holder = None
        insort(self.returned, index, key=self.order.place)

    def finish(self, index: int, *, dropped: bool = False) -> None:
        """An outstanding task is done, or dropped."""
        if self.outstanding.pop(index).holder is None:
            self.returned.remove(index)
        self.dropped += dropped

    def known(self, index: int) -> bool:
        """Whether a task was ever handed out."""
        return index in self.ahead or self.order.place(index) < self.cursor

    def adopt(self, index: int, attempt: int, trainer: str) -> None:
        """Takes over a lease that another master gave: the task must not be done here."""
        task = self.outstanding.get(index)
        if task is None:
            self.ahead.add(index)
            self.outstanding[index] = Outstanding(attempt, trainer)
            return
        if task.holder is None:
            self.returned.remove(index)
        task.attempt, task.holder = attempt, trainer

    def exists(self, index: int) -> bool:
        """Whether there is such a task."""
        return index >= 0 and (self.count is None or index < self.count)

    def _next(self) -> int:
        while True:
            index = self.order.at(self.cursor)
            self.cursor += 1
            if index not in self.ahead:
                return index
            self.ahead.discard(index)

    def dump(self) -> Json:
        """As JSON; see `load`."""
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
    def load(cls, dumped: Json, count: int | None, order: Order) -> "Epoch":
        """The epoch that `dump` wrote."""
        return cls(
            dumped["number"],
            count,
            order,
            dumped["cursor"],
            {i: Outstanding(*rest) for i, *rest in dumped["outstanding"]},
            sorted(dumped["returned"], key=order.place),  # older books have another order
            set(dumped["ahead"]),
            dumped["dropped"],
        )
