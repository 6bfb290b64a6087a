"""Errors in a user's model file.

```
EdlError
└── ModelError         the file, or a value that a function returned, is invalid
    ├── UserCodeError  a function of the file raised an error; `trace` has the traceback
    └── OutOfMemory    the memory is too small for a batch
```
"""

from __future__ import annotations

from edl.errors import EdlError


class ModelError(EdlError):
    """The file, or a value that one of its functions returned, is invalid."""


class UserCodeError(ModelError):
    """A function of the user's file raised an error."""

    def __init__(self, text: str, trace: str) -> None:
        """Creates the error.

        Args:
            text: One line that names the function, its file, the time of the call, and the error.
            trace: The traceback to show before the message; it starts in the user's file.
        """
        super().__init__(text)
        self.trace = trace


class OutOfMemory(ModelError):  # noqa: N818 - the usual name of this error
    """The machine's memory is too small for a batch."""
