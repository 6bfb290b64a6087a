"""Prints Kubernetes objects, for a file or for kubectl."""

from __future__ import annotations

import os
import sys

from edl.errors import SettingError
from edl.jobs.flags import CLOSED_PIPE, DONE


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
        _discard_output()
        if isinstance(error, BrokenPipeError):
            return CLOSED_PIPE  # its reader says why, such as kubectl
        raise SettingError(f"the output cannot be written: {error.strerror}") from error
    return DONE


def _discard_output() -> None:
    """Keeps Python from writing at its end what could not be written before."""
    unread = os.open(os.devnull, os.O_WRONLY)
    os.dup2(unread, sys.stdout.fileno())
    os.close(unread)
