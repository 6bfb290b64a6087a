"""The errors of a parameter server.

```
PserverError(Exception)
├── BusyError            the same call may succeed a moment later
├── FullError            the memory limit would be exceeded
└── ShardError           a file cannot be read or written

RefusedError             the same call will be refused again (`runtime.call_checks`)
└── NonFiniteError       a gradient with NaN or infinity
```
"""

from runtime.call_checks import RefusedError


class PserverError(Exception):
    """Base class; each message is one line."""


class NonFiniteError(RefusedError):
    """A gradient contains NaN or infinity; its push was not applied."""

    def __init__(self, parameter: str) -> None:
        """Creates the error for a parameter."""
        super().__init__(
            422, f"the gradient of {parameter!r} holds NaN or infinity", f"gradients.{parameter}"
        )
        self.parameter = parameter


class BusyError(PserverError):
    """The call cannot be served now; the caller retries."""


class FullError(PserverError):
    """More bytes are needed than this server may use."""

    def __init__(self, needed_bytes: int) -> None:
        """Creates the error for a number of missing bytes."""
        super().__init__(f"{needed_bytes} bytes more than this server may use")
        self.needed_bytes = needed_bytes


class ShardError(PserverError):
    """A file of a checkpoint, or its folder, is unusable; the message names it and the reason."""
