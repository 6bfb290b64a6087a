"""Exceptions of the master; each text is one line.

```
MasterError(Exception)
├── RefusedError        the same call would be refused again: an HTTP status and the wrong field
├── UnavailableError    the same call may work later: the disk is full, or this master stops
├── JournalError        a journal or a snapshot that cannot be written or read
└── FencedError         another master serves the job: this one must stop
```
"""


class MasterError(Exception):
    """The root of all exceptions of the master."""


class RefusedError(MasterError):
    """A call that cannot be served, and that would be refused again.

    Attributes:
        status: The HTTP status, 400 to 499.
        field: The wrong field, or None.
    """

    def __init__(self, status: int, message: str, field: str | None = None) -> None:
        """States what is wrong and how to correct it, in one line."""
        super().__init__(message)
        self.status = status
        self.field = field


class UnavailableError(MasterError):
    """A call that may work later: the disk is full, or this master is about to stop."""


class JournalError(MasterError):
    """The journal or the snapshot cannot be written or read; the text names which and why."""


class FencedError(MasterError):
    """Another master serves this job now: this one must stop at once."""
