"""Writes to standard output, whose reader may have ended or whose disk may be full."""

from __future__ import annotations

import logging
import os
import sys

log = logging.getLogger("edl.run")


class Output:
    """Standard output of a run; after the first error, further output is discarded."""

    def __init__(self) -> None:
        self.lost_reader = False
        """Whether the program that read the output, such as `head`, has ended."""

    def write(self, text: str) -> None:
        """Writes and flushes a text; never raises."""
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            discard_output()
            if isinstance(error, BrokenPipeError):
                self.lost_reader = True
            else:
                log.warning("cannot write the output, discarding it: %s", error.strerror)


def discard_output() -> None:
    """Redirects standard output to the null device, so that Python's flush at exit does not fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
