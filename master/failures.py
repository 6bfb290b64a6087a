"""Failures of tasks, and of the job. Pure."""

from master.types import Json

_MAX_NEWEST = 20
_MAX_DROPPED = 16_384
"""Tasks that may be dropped, whatever share they are: a snapshot has their numbers."""
_DROPPED_OF_STREAM = 16
"""Tasks of a stream that may be dropped, whatever share of it they are."""


def max_dropped(count: int | None, done: int, share: float) -> int:
    """How many tasks of a data set may be dropped, in all epochs together.

    Args:
        count: Number of its tasks; None for a stream.
        done: Number of tasks that were done.
        share: The share that may be dropped, 0 to 1; one task may be with any share above 0.
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
        """Why the job failed, or ""."""
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
        """The failures as JSON; see `load`."""
        return {"failed": self.job_reason, "failures": self.newest, "dropped": [*self.dropped]}

    def load(self, dumped: Json) -> None:
        """Restores what `dump` wrote."""
        self.job_reason = dumped["failed"]
        self.newest, self.dropped = dumped["failures"], dumped["dropped"]
