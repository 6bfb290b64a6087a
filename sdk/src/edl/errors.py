"""Errors of the SDK; each text is one line that names the thing and the way out.

```
EdlError(Exception)
├── SettingError       an environment variable that cannot be used
├── DataError          a data set or a record that cannot be read
│   └── RecordError    one record, by its number
├── CheckpointError    a checkpoint that cannot be written or read
├── TrainingError      a step that cannot be made: its loss is no number
├── RoundOver          members cannot exchange anything more in this round
│   └── Mismatch       because they do different things: the next round would end the same way
└── MasterError        what the master said, or that it says nothing
    ├── Unavailable    no answer: away, restarting or overloaded; the same call may work later
    └── Refused        an answer that the same call would get again
```
"""

from __future__ import annotations


class EdlError(Exception):
    """The root; a program that catches this catches all of ours."""


class SettingError(EdlError):
    """An environment variable that is missing or cannot be read."""


class DataError(EdlError):
    """A data set that cannot be opened or read."""


class RecordError(DataError):
    """One record that cannot be read; its task fails, others go on."""

    def __init__(self, record: int, cause: BaseException | str) -> None:
        """Names the record.

        Args:
            record: Its number in its data set, or in its file where the data set has files.
            cause: What went wrong.
        """
        self.why = cause if isinstance(cause, str) else one_line(cause)
        super().__init__(f"record {record}: {self.why}")
        self.record = record


class CheckpointError(EdlError):
    """A checkpoint that cannot be written or read."""


class TrainingError(EdlError):
    """A step that cannot be made; the job fails, as its policy says."""


class RoundOver(EdlError):  # noqa: N818 - a state of the round, not a fault of the caller
    """The exchange cannot go on in this round: a member is gone, or news broke it."""

    told = False
    """Whether the text is that of another member, which was there first."""


class Mismatch(RoundOver):
    """Members brought different operations or sizes; the text names both sides."""


class MasterError(EdlError):
    """What the master said, or that it says nothing."""


class Unavailable(MasterError):  # noqa: N818 - a state of the master, as in HTTP
    """No answer: the same call may work later."""


class Refused(MasterError):  # noqa: N818 - what the master did, as in HTTP
    """An answer that the same call would get again."""

    def __init__(self, status: int, message: str, field: str | None = None) -> None:
        """Keeps the parts of the master's answer.

        Args:
            status: HTTP status, 400 to 499.
            message: What the master wrote.
            field: The field of the request it is about, where it named one.
        """
        super().__init__(f"{message} ({status})")
        self.status = status
        self.field = field


def one_line(error: BaseException) -> str:
    """`Type: text` on one line, without a trace."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
