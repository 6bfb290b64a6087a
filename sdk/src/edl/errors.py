"""Errors of the SDK; each text is one line that names the problem and what to do.

```
EdlError(Exception)
├── SettingError       an environment variable that cannot be used
├── DataError          a data set or a record that cannot be read
│   └── RecordError    one record, by its number
├── CheckpointError    a checkpoint that cannot be written or read
├── TrainingError      a step that cannot be made: its loss is not finite
├── RoundOver          members can exchange nothing more in this round
│   └── Mismatch       because they run different operations: the next round would end the same way
└── MasterError        the master refused a call, or did not answer it
    ├── Unavailable    no answer: away, restarting or overloaded; the same call may work later
    └── Refused        an answer that the same call would get again
```
"""

from __future__ import annotations


class EdlError(Exception):
    """The base class of all errors of the SDK."""


class SettingError(EdlError):
    """An environment variable that is missing or cannot be read."""


class DataError(EdlError):
    """A data set that cannot be opened or read."""


class RecordError(DataError):
    """One record that cannot be read; its task fails, other tasks continue."""

    def __init__(self, record: int, cause: BaseException | str) -> None:
        """Creates the error of one record.

        Args:
            record: Its number in its data set, or in its file where the data set has files.
            cause: The exception or text that says what went wrong.
        """
        self.reason = cause if isinstance(cause, str) else one_line(cause)
        super().__init__(f"record {record}: {self.reason}")
        self.record = record


class CheckpointError(EdlError):
    """A checkpoint that cannot be written or read."""


class TrainingError(EdlError):
    """A step that cannot be made; the job fails."""


class RoundOver(EdlError):  # noqa: N818 - a state of the round, not a fault of the caller
    """The exchange cannot continue in this round: a member is lost, or a later round began."""

    from_peer = False
    """Whether the text was received from another member."""


class Mismatch(RoundOver):
    """Members called different operations or sizes; the text names both sides."""


class MasterError(EdlError):
    """A call that the master refused or did not answer."""


class Unavailable(MasterError):  # noqa: N818 - a state of the master, as in HTTP
    """No answer: the same call may work later."""


class Refused(MasterError):  # noqa: N818 - what the master did, as in HTTP
    """An answer that the same call would get again."""

    def __init__(self, status: int, message: str, field: str | None = None) -> None:
        """Creates the error from the parts of the master's answer.

        Args:
            status: HTTP status, 400 to 499.
            message: The text of the answer.
            field: The field of the request that the answer names, if any.
        """
        super().__init__(f"{message} ({status})")
        self.status = status
        self.field = field


def one_line(error: BaseException) -> str:
    """`Type: text` on one line, without a traceback."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
