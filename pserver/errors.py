"""The errors of a parameter server.

```
PserverError(Exception)
├── BusyError            the same call may succeed a moment later
├── FullError            the memory limit does not allow what would have to be stored
└── ShardError           a file that cannot be read or written

RefusedError             the same call would be refused again (`runtime.call_checks`)
└── NonFiniteError       a gradient with NaN or infinity
```
"""

from runtime.call_checks import RefusedError


class PserverError(Exception):
    """Base class; each message is one line."""


class NonFiniteError(RefusedError):
    """A gradient contains NaN or infinity; nothing of its push was applied."""

    def __init__(self, parameter: str) -> None:
        """Takes the parameter's name."""
        super().__init__(
            422, f"the gradient of {parameter!r} holds NaN or infinity", f"gradients.{parameter}"
        )
        self.parameter = parameter


class BusyError(PserverError):
    """The call cannot be served now; the caller retries."""


class FullError(PserverError):
    """More bytes are needed than this server may use."""

    def __init__(self, needed_bytes: int) -> None:
        """Takes the number of missing bytes."""
        super().__init__(f"{needed_bytes} bytes more than this server may use")
        self.needed_bytes = needed_bytes


class ShardError(PserverError):
    """A file of a checkpoint, or its folder, is unusable; the message names it and the reason."""
