"""Errors of asynchronous training; each text is one line that names the thing and the way out.

```
EdlError
├── ServersError     what parameter servers said, or that they say nothing
│   ├── Away         no answer: the same call may work later
│   └── Declined     an answer that the same call would get again
│       └── Moved    the servers have begun another generation: pull, and compute again
└── TrainingError
    └── BadGradient  a gradient or a loss is no number
```
"""

from __future__ import annotations

from edl.errors import EdlError, TrainingError


class ServersError(EdlError):
    """What parameter servers said, or that they say nothing."""


class Away(ServersError):  # noqa: N818 - a state of the servers
    """No answer: the same call may work later."""


class Declined(ServersError):  # noqa: N818 - what a server did
    """An answer that the same call would get again."""

    def __init__(self, status: int, message: str, field: str | None = None) -> None:
        """Keeps the parts of the answer.

        Args:
            status: HTTP status, 400 to 499, or 507 where a server is full.
            message: What the server wrote.
            field: What it is about, where the server named that.
        """
        super().__init__(f"{message} ({status})")
        self.status = status
        self.field = field


class Moved(Declined):
    """The servers have begun another generation; parameters must be pulled anew."""


class BadGradient(TrainingError):  # noqa: N818 - what it is about
    """A gradient or a loss that is no number; names trainer, step and parameter."""

    def __init__(self, trainer: str, step: int, what: str) -> None:
        """Nothing of the step was sent."""
        super().__init__(
            f"{what} is NaN or infinite at step {step} of trainer {trainer}: lower the learning "
            'rate, look at the data of that step, or leave such steps out with on_nan="skip"'
        )
        self.step = step
        self.what = what
