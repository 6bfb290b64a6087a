"""Errors of the commands: each has a one-line message for people and an exit code for scripts.

```
Exception
└── CliError   a command cannot carry out the request; the message says how to fix that
IntEnum
└── ExitCode   the exit code of the command
```
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    OK = 0
    FAILED = 1
    """The cluster cannot be reached, or did not carry out the request."""
    USAGE = 2
    """A flag or an argument is wrong; nothing was sent."""
    NOT_FOUND = 3
    """A job, pod or file was not found."""
    FORBIDDEN = 4
    """The caller lacks a permission, which the message names."""
    NO_EDL = 5
    """The cluster has no EDL, or an EDL older than this command."""
    INTERRUPTED = 130
    """Ctrl-C."""
    CLOSED_PIPE = 141
    """The program that was reading the output has exited."""


CODES = (
    "Exit codes: 0 success, 1 cluster error, 2 wrong arguments, 3 job, pod or file not found, "
    "4 permission denied, 5 EDL not installed."
)
"""Printed at the end of each help text."""


class CliError(Exception):
    """A command cannot carry out the request; the message is one line and says how to fix that."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        """Initializes the error with an exit code; line breaks are removed from the message."""
        super().__init__(" ".join(message.split()))
        self.code = code
