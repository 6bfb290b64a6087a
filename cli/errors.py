"""Errors of the commands: each is one line for people, and an exit code for scripts.

```
Exception
└── CliError   a command cannot do what is asked; the text names the way out
IntEnum
└── ExitCode   what it returns then
```
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    OK = 0
    FAILED = 1
    """The cluster cannot be reached, or did not do what was asked."""
    USAGE = 2
    """A flag or an argument is wrong; nothing was sent."""
    NOT_FOUND = 3
    """A job, pod or file was not found."""
    FORBIDDEN = 4
    """The caller lacks a permission, which the text names."""
    NO_EDL = 5
    """The cluster has no EDL, or one that is older than this command."""
    INTERRUPTED = 130
    """Ctrl-C."""
    CLOSED_PIPE = 141
    """The program that reads the output has ended."""


CODES = (
    "Exit codes: 0 success, 1 cluster error, 2 wrong arguments, 3 job, pod or file not found, "
    "4 permission denied, 5 EDL not installed."
)
"""For the end of each help text."""


class CliError(Exception):
    """A command cannot do what is asked; the text is one line that names the way out."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        """Stores the text, with line breaks removed, and the exit code."""
        super().__init__(" ".join(message.split()))
        self.code = code
