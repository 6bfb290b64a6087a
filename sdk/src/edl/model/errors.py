"""What goes wrong with a user's file.

```
EdlError
└── ModelError         the file, or what one of its functions gives, cannot be used
    ├── UserCodeError  a function of the file raised; `trace` says where
    └── OutOfMemory    the machine's memory is too small for a batch
```
"""

from __future__ import annotations

from edl.errors import EdlError


class ModelError(EdlError):
    """The file, or what one of its functions gives, cannot be used."""


class UserCodeError(ModelError):
    """A function of the user's file raised."""

    def __init__(self, text: str, trace: str) -> None:
        """Keeps both parts.

        Args:
            text: One line: which function, of which file, when, and what it raised.
            trace: The traceback from the user's file on, to be shown above the line.
        """
        super().__init__(text)
        self.trace = trace


class OutOfMemory(ModelError):  # noqa: N818 - as `MemoryError` without its suffix is named in the field
    """The machine's memory is too small for a batch."""
