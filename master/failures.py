"""Failures of tasks, and of the job. Pure."""

from master.types import Json

_MOST_NEWEST = 20


class Failures:
    """The failures that trainers reported, and why the job failed."""

    def __init__(self, most_dropped: int) -> None:
        """Starts without failures; more dropped tasks than `most_dropped` fail the job."""
        self._most_dropped = most_dropped
        self.job_reason = ""
        """Why the job failed, or ""."""
        self.newest: list[Json] = []
        """The newest reports of failed tasks, for the status."""
        self.dropped: list[Json] = []
        """Tasks that failed too often, with the last error; at most one more than may be dropped."""

    def add(self, task: str, trainer: str, error: str, *, dropped: bool) -> None:
        """Adds the failure of a task, which fails the job where too many were dropped."""
        failure = {"task": task, "by": trainer, "error": error}
        self.newest = [*self.newest[1 - _MOST_NEWEST :], failure]
        if dropped:
            self.dropped.append(failure)
        if len(self.dropped) > self._most_dropped:
            self.job_reason = (
                f"{len(self.dropped)} tasks were dropped, the last of them {task}: {error}"
            )

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
