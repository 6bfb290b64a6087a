"""Errors of the SDK; each message is one line that names the problem and what to do.

```
EdlError(Exception)
├── SettingError       a setting, such as an environment variable, is missing or invalid
├── DataError          a data set or a record cannot be read
│   └── RecordError    one record, with its number
├── CheckpointError    a checkpoint cannot be written or read
├── TrainingError      a step is impossible, for example because its loss is not finite
├── RoundOver          the current round has ended for its members
│   └── Mismatch       members run different operations; the next round would end in the same way
└── MasterError        the master refused a call or did not answer it
    ├── Unavailable    no answer (away, restarting or overloaded); the same call may work later
    └── Refused        the master would refuse the same call again
```
"""

from __future__ import annotations

import errno
import unicodedata

_MAX_CAUSES = 16
_PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_MISTAKES = frozenset({errno.EBADF, errno.EINVAL, errno.ELOOP, errno.ENAMETOOLONG, errno.ESPIPE})
"""Error codes for invalid system calls; damaged data with impossible offsets causes such calls."""
_TOO_MANY, _SERVER, _CODES_END = 429, 500, 600
_UNSEEN = ("Cc", "Cf", "Cs")


class EdlError(Exception):
    """The base class of all errors of the SDK."""


class SettingError(EdlError):
    """A setting, such as an environment variable or a flag, is missing or invalid."""


class DataError(EdlError):
    """A data set cannot be opened or read."""


class RecordError(DataError):
    """A record cannot be read; its task fails, and other tasks continue."""

    def __init__(self, record: int, cause: BaseException | str) -> None:
        """Creates the error of one record.

        Args:
            record: The record's number in its data set, or in its file if the data set has files.
            cause: The exception that was raised, or a text that describes the problem.
        """
        self.reason = cause if isinstance(cause, str) else one_line(cause)
        super().__init__(f"record {record}: {self.reason}")
        self.record = record
        self.transient = not isinstance(cause, str) and is_transient(cause)


class CheckpointError(EdlError):
    """A checkpoint cannot be written or read."""


class TrainingError(EdlError):
    """A step is impossible; the job fails."""


class RoundOver(EdlError):  # noqa: N818 - a state of the round, not a fault of the caller
    """The round has ended: a member is lost, or a later round has started."""

    from_peer = False
    """Whether the text was received from another member."""


class Mismatch(RoundOver):
    """Members called operations of different kinds or sizes; the message names both sides."""


class MasterError(EdlError):
    """The master refused a call or did not answer it."""


class Unavailable(MasterError):  # noqa: N818 - a state of the master, as in HTTP
    """The master did not answer; the same call may work later."""


class Refused(MasterError):  # noqa: N818 - what the master did, as in HTTP
    """The master refused the call, and would refuse it again."""

    def __init__(self, status: int, message: str, field: str | None = None) -> None:
        """Creates the error from the master's answer.

        Args:
            status: HTTP status, 400 to 499.
            message: The message in the answer.
            field: The request's field that was refused; None if the answer names no field.
        """
        super().__init__(f"{message} ({status})")
        self.status = status
        self.field = field


def is_transient(error: BaseException) -> bool:
    """Returns whether the storage failed, in which case the same read may work later.

    Missing and forbidden files are permanent failures. An OSError without a system error code is not
    transient by itself: readers of images, archives and tables raise it for damaged data. The
    causes of an error are also examined, because storage clients raise their own errors with a system
    error as the cause.
    """
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if cause is None:
            break
        known = _known_transient(cause)
        if known is not None:
            return known
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return False


def _known_transient(error: BaseException) -> bool | None:
    """Returns whether the storage failed, judged by this error alone; None if the error does not tell."""
    if isinstance(error, RecordError):
        return error.transient
    if isinstance(error, _PERMANENT):
        return False
    is_timeout = type(error).__name__ == "timeout"  # socket.timeout before Python 3.10
    if isinstance(error, (ConnectionError, TimeoutError)) or is_timeout:
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno not in _MISTAKES
    code = getattr(error, "code", None)  # the HTTP status, in urllib's errors and some others
    return True if code == _TOO_MANY or _is_server_error(code) else None


def _is_server_error(code: object) -> bool:
    return isinstance(code, int) and _SERVER <= code < _CODES_END


def one_line(error: BaseException) -> str:
    """Returns an error as `Type: text` on one line, without a traceback."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")


def printable(text: object) -> str:
    """Returns the text on one line, with control and formatting characters replaced by `?`.

    File names and messages of other programs may contain escape sequences for terminals.
    """
    words = " ".join(str(text).split())
    return "".join("?" if unicodedata.category(char) in _UNSEEN else char for char in words)
