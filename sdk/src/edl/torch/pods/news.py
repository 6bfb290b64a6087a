"""Tells the processes of a pod that a round is over, with a number in shared memory.

Processes that wait for members read the number every 10 ms. The thread that writes the number must
never block.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

from edl.errors import SettingError, one_line

_BYTES = 8


class PodNews:
    """The number of the newest round that is over, shared by the processes of a pod."""

    def __init__(self, path: str = "") -> None:
        """Opens the file that holds the number, or creates one if no path is given.

        Raises:
            SettingError: The file does not exist, or cannot be created.
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
        self._number = memoryview(self._memory).cast("Q")  # writes 8 bytes at once

    def remove(self) -> None:
        """Removes the file, once all processes have opened it."""
        Path(self.path).unlink()

    def write(self, number: int) -> None:
        """Records that this round and all earlier ones are over."""
        self._number[0] = max(self._number[0], number)

    def of(self, number: int) -> RoundNews:
        """Returns an object that tells whether one round is over."""
        return RoundNews(self, number)

    @property
    def number(self) -> int:
        """The newest round that is over; 0 if there is none."""
        return self._number[0]


class RoundNews:
    """An `edl.torch.groups.waiting.News` of one round."""

    def __init__(self, news: PodNews, number: int) -> None:
        self._news, self._number = news, number

    @property
    def is_set(self) -> bool:
        """Whether the round is over."""
        return self._news.number >= self._number
