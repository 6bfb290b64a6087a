"""Errors of asynchronous training; each message is one line that names the cause and the remedy.

```
EdlError
├── ServersError               parameter servers refused a call or did not answer
│   ├── ServersUnavailable     no answer: a retry may succeed
│   └── RequestRefused         a refusal; a retry would be refused, too
│       └── GenerationChanged  the servers have started another generation: pull and recompute
└── TrainingError
    └── NonFiniteGradient      a gradient or a loss is NaN or infinite
```
"""

from __future__ import annotations

from edl.errors import EdlError, TrainingError


class ServersError(EdlError):
    """Parameter servers refused a call or did not answer."""


class ServersUnavailable(ServersError):  # noqa: N818 - named after a state of the servers
    """No answer: a retry may succeed."""


class RequestRefused(ServersError):  # noqa: N818 - named after a server's action
    """A server refused the request; a retry would be refused, too."""

    def __init__(self, status: int, message: str, field: str | None = None) -> None:
        """Stores the parts of the answer.

        Args:
            status: HTTP status: 400 to 499, or 507 if a server is out of memory.
            message: The server's message.
            field: The field of the request that was refused, if any.
        """
        super().__init__(f"{message} ({status})")
        self.status = status
        self.field = field


class GenerationChanged(RequestRefused):
    """The servers have started another generation; parameters must be pulled again."""


class NonFiniteGradient(TrainingError):  # noqa: N818 - named after the problem
    """A gradient or a loss is NaN or infinite; the message names trainer, step and parameter."""

    def __init__(self, trainer: str, step: int, quantity: str) -> None:
        """Creates the error for a step that was not sent to the servers."""
        super().__init__(
            f"{quantity} is NaN or infinite at step {step} of trainer {trainer}: lower the learning "
            'rate, check the data of that step, or skip such steps with on_nan="skip"'
        )
        self.step = step
        self.quantity = quantity
