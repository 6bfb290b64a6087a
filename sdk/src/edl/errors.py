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

import errno
import unicodedata

_MAX_CAUSES = 16
_PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_MISTAKES = frozenset({errno.EBADF, errno.EINVAL, errno.ELOOP, errno.ENAMETOOLONG, errno.ESPIPE})
"""Codes of calls that are wrong: damaged data names places where no file has any."""
_TOO_MANY, _SERVER, _CODES_END = 429, 500, 600
_UNSEEN = ("Cc", "Cf", "Cs")


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
        self.transient = not isinstance(cause, str) and is_transient(cause)


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


def is_transient(error: BaseException) -> bool:
    """Returns whether the storage failed, and not the data: the same read may work later.

    A file that is missing or forbidden is a mistake that time does not mend. Readers of images,
    archives and tables raise an OSError of their own for damaged data, without a code of the
    system; clients of storage raise errors of their own, whose cause is one of the system.
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
    """Returns whether the storage failed, as far as this one error says it, without its causes."""
    if isinstance(error, RecordError):
        return error.transient
    if isinstance(error, _PERMANENT):
        return False
    is_timeout = type(error).__name__ == "timeout"  # socket's own, before Python 3.10
    if isinstance(error, (ConnectionError, TimeoutError)) or is_timeout:
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno not in _MISTAKES
    code = getattr(error, "code", None)  # of HTTP, in urllib's error and in others
    return True if code == _TOO_MANY or _is_server_error(code) else None


def _is_server_error(code: object) -> bool:
    return isinstance(code, int) and _SERVER <= code < _CODES_END


def one_line(error: BaseException) -> str:
    """`Type: text` on one line, without a traceback."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")


def printable(text: object) -> str:
    """Returns the text on one line, with control and formatting characters replaced by `?`.

    Names in files and messages of other programs may hold sequences that change what a terminal shows.
    """
    words = " ".join(str(text).split())
    return "".join("?" if unicodedata.category(char) in _UNSEEN else char for char in words)
