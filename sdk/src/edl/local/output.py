"""Standard output of a run, which may have no reader any more, or no space."""

from __future__ import annotations

import logging
import os
import sys

log = logging.getLogger("edl.run")


class Output:
    """Writes to standard output; after an error there, what follows is left out."""

    def __init__(self) -> None:
        self.lost_reader = False
        """Whether the program that read it has ended, such as `head`."""

    def write(self, text: str) -> None:
        """Writes a text at once; raises nothing."""
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            discard_output()
            if isinstance(error, BrokenPipeError):
                self.lost_reader = True
            else:
                log.warning("the output cannot be written, and is left out: %s", error.strerror)


def discard_output() -> None:
    """Keeps Python from writing at its end what could not be written before."""
    unread = os.open(os.devnull, os.O_WRONLY)
    os.dup2(unread, sys.stdout.fileno())
    os.close(unread)
