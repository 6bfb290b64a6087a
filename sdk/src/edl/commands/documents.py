"""Prints Kubernetes objects, for a file or for kubectl."""

from __future__ import annotations

from edl.errors import SettingError
from edl.jobs.flags import CLOSED_PIPE, DONE
from edl.local.output import discard_output


def print_documents(text: str) -> int:
    """Prints YAML.

    Returns:
        The exit code.

    Raises:
        SettingError: It cannot be written, for example to a full disk.
    """
    try:
        print(text, end="", flush=True)
    except OSError as error:
        discard_output()
        if isinstance(error, BrokenPipeError):
            return CLOSED_PIPE  # its reader says why, such as kubectl
        raise SettingError(f"the output cannot be written: {error.strerror}") from error
    return DONE
