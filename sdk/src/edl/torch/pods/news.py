"""Tells the processes of a pod that a round is over: a number in memory that they share.

It is read each 10 ms by processes that wait for members, and written by a thread that must not block.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

from edl.errors import SettingError, one_line

_BYTES = 8


class PodNews:
    """The newest round that is over."""

    def __init__(self, path: str = "") -> None:
        """Opens the number; makes a file for it if no path is given.

        Raises:
            SettingError: There is no such file, or no room for it.
        """
        try:
            if path:
                descriptor = os.open(path, os.O_RDWR)
                self.path = path
            else:
                descriptor, self.path = tempfile.mkstemp(prefix="edl-pod-")
                os.truncate(descriptor, _BYTES)
            try:
                self._memory = mmap.mmap(descriptor, _BYTES)
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise SettingError(
                f"the processes of this pod share no temporary folder ({one_line(error)}): start them on "
                "one machine, with the same TMPDIR"
            ) from error
        self._number = memoryview(self._memory).cast("Q")  # written at once, not by bytes

    def remove(self) -> None:
        """Removes the file, once all have opened it."""
        Path(self.path).unlink()

    def write(self, number: int) -> None:
        """Says that this round is over, and those before it."""
        self._number[0] = max(self._number[0], number)

    def of(self, number: int) -> RoundNews:
        """What says whether this round is over."""
        return RoundNews(self, number)

    @property
    def number(self) -> int:
        """The newest round that is over; 0 where none is."""
        return self._number[0]


class RoundNews:
    """An `edl.torch.groups.waiting.News` of one round."""

    def __init__(self, news: PodNews, number: int) -> None:
        self._news, self._number = news, number

    @property
    def is_set(self) -> bool:
        """Whether the round is over."""
        return self._news.number >= self._number
