"""Exceptions of the master; each text is one line.

```
MasterError(Exception)
├── UnavailableError    the same call may succeed later: the disk is full, or this master stops
├── JournalError        a journal or a snapshot cannot be written or read
└── FencedError         another master serves the job: this one must stop
```
"""


class MasterError(Exception):
    """The root of all exceptions of the master."""


class UnavailableError(MasterError):
    """A call that may succeed later: the disk is full, or this master is about to stop."""


class JournalError(MasterError):
    """The journal or the snapshot cannot be written or read; the text names which and why."""


class FencedError(MasterError):
    """Another master serves this job now: this one must stop at once."""
