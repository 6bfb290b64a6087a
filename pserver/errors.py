"""What a parameter server refuses, in the protocol's terms.

```
PserverError(Exception)
├── RefusedError         the same call would be refused again
│   └── NonFiniteError   a gradient with NaN or infinity
├── BusyError            the same call may work in a moment
├── FullError            there is no room for what would have to be kept
└── ShardError           a file that cannot be read or written
```
"""


class PserverError(Exception):
    """The root; each text is one line."""


class RefusedError(PserverError):
    """A call that cannot be served and would not be the next time either.

    Attributes:
        status: HTTP's, 400 to 499.
        named: The field that is wrong, or None.
    """

    def __init__(self, status: int, message: str, named: str | None = None) -> None:
        """Says what is wrong and what to do about it, in one line."""
        super().__init__(message)
        self.status = status
        self.named = named


class NonFiniteError(RefusedError):
    """A gradient with NaN or infinity in it; nothing of its push was applied."""

    def __init__(self, parameter: str) -> None:
        """Names the parameter."""
        super().__init__(
            422, f"the gradient of {parameter!r} holds NaN or infinity", f"gradients.{parameter}"
        )
        self.parameter = parameter


class BusyError(PserverError):
    """Not now: the caller tries again."""


class FullError(PserverError):
    """More bytes would be needed than this server may use."""

    def __init__(self, needed_bytes: int) -> None:
        """Says how many bytes are missing."""
        super().__init__(f"{needed_bytes} bytes more than this server may use")
        self.needed_bytes = needed_bytes


class ShardError(PserverError):
    """A file of a checkpoint, or its folder, cannot be used; the text says which and why."""
