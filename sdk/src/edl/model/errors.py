"""Errors of a user's file.

```
EdlError
└── ModelError         the file, or a value that a function returned, cannot be used
    ├── UserCodeError  a function of the file raised; `trace` has the traceback
    └── OutOfMemory    memory is too small for a batch
```
"""

from __future__ import annotations

from edl.errors import EdlError


class ModelError(EdlError):
    """The file, or a value that one of its functions returned, cannot be used."""


class UserCodeError(ModelError):
    """A function of the user's file raised."""

    def __init__(self, text: str, trace: str) -> None:
        """Stores both parts.

        Args:
            text: One line: which function, of which file, when, and what it raised.
            trace: The traceback from the user's file on, shown above the line.
        """
        super().__init__(text)
        self.trace = trace


class OutOfMemory(ModelError):  # noqa: N818 - as `MemoryError` without its suffix is named in the field
    """The machine's memory is too small for a batch."""
