"""Failures of tasks, and of the job (decision 0031). Pure."""

from dataclasses import dataclass, field
from typing import Any

from runtime.call_checks import Json

_MAX_NEWEST = 20
_MAX_DROPPED = 16_384
"""Maximum number of dropped tasks, whatever their share: snapshots list every dropped task."""
_DROPPED_OF_STREAM = 16
"""Number of a stream's tasks that may be dropped whatever their share."""
OUTAGE_TASKS = 3
"""Number of tasks that must fail with the same kind of error, with no task done in between, to
count as an outage."""
_MAX_TASKS = 16
"""If this many tasks have failed and no task was ever done, the job fails: its program or its data
is wrong."""


def max_dropped(count: int | None, done: int, share: float) -> int:
    """Returns how many tasks of a data set may be dropped, in all epochs together.

    Args:
        count: Number of its tasks; None for a stream.
        done: Number of tasks that were done.
        share: The share of tasks that may be dropped, 0 to 1. Any share above 0 allows one task.
    """
    if count is None:
        least, most = _DROPPED_OF_STREAM, int(share * done)
    else:
        least, most = 1, min(_MAX_DROPPED, int(share * count))
    return max(most, least) if share else 0


class Failures:
    """The failures that trainers reported, and why the job failed."""

    def __init__(self) -> None:
        self.job_reason = ""
        """Why the job failed; "" if it has not."""
        self.newest: list[Json] = []
        """The newest reports of failed tasks, for the status."""
        self.dropped: list[Json] = []
        """The newest tasks that failed too often, with their last error."""

    def add(self, task: str, trainer: str, error: str, *, dropped: bool) -> None:
        """Adds the failure of a task."""
        failure = {"task": task, "by": trainer, "error": error}
        self.newest = [*self.newest[1 - _MAX_NEWEST :], failure]
        if dropped:
            self.dropped = [*self.dropped[1 - _MAX_NEWEST :], failure]

    def fail_job(self, reason: str) -> None:
        """Fails the job."""
        self.job_reason = reason

    def dump(self) -> Json:
        """Returns the failures as JSON; see `load`."""
        return {"failed": self.job_reason, "failures": self.newest, "dropped": [*self.dropped]}

    def load(self, dumped: Json) -> None:
        """Restores what `dump` wrote."""
        self.job_reason = dumped["failed"]
        self.newest, self.dropped = dumped["failures"], dumped["dropped"]


@dataclass(slots=True)
class FailureWave:
    """The tasks of a data set that failed with one kind of error since a task was last done.

    All errors of a storage count as one kind: during an outage, clients see time-outs, refused and reset
    connections in turn.
    """

    tasks: list[str] = field(default_factory=list)
    """The failed tasks, each listed once, at most 16."""
    error: str = ""
    """The newest error."""
    transient: bool = False
    """Whether the storage, and not the data, caused the newest failure."""
    failures: int = 0
    """Failures since this process started; only changes of this number have a meaning."""

    def add(self, task: str, error: str, *, transient: bool) -> None:
        """Adds a failure; another kind of error begins a new wave."""
        self.failures += 1
        if not (transient and self.transient) and _kind(error) != _kind(self.error):
            self.tasks = []
        self.error, self.transient = error, transient
        if task not in self.tasks and len(self.tasks) < _MAX_TASKS:
            self.tasks.append(task)

    def drop(self, task: str) -> None:
        """Removes a task that was dropped, and is not retried."""
        if task in self.tasks:
            self.tasks.remove(task)

    def clear(self) -> None:
        """Ends the wave, because a task was done."""
        self.tasks, self.error, self.transient = [], "", False

    @property
    def full(self) -> bool:
        """Whether the maximum number of tasks has failed."""
        return len(self.tasks) >= _MAX_TASKS

    def is_outage(self, *, any_done: bool) -> bool:
        """Returns whether the tasks fail for a cause that may pass, and not because of their data.

        Args:
            any_done: Whether a task of the data set was ever done, which shows that the program can
                read the data.
        """
        return len(self.tasks) >= OUTAGE_TASKS and (self.transient or any_done)

    def dump(self) -> list[Any]:
        """Returns the wave for a snapshot; see `load`."""
        return [list(self.tasks), self.error, self.transient]

    @classmethod
    def load(cls, dumped: list[Any]) -> "FailureWave":
        """Returns the wave that `dump` wrote."""
        tasks, error, transient = dumped
        return cls(tasks, error, transient)


def _kind(error: str) -> str:
    """Returns the type with which an error's text begins: OSError for "OSError: [Errno 116] Stale file handle"."""
    return error.partition(":")[0]
