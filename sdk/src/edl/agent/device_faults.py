"""Recognizes lines with which a framework reports that a device or a communicator has failed (pure).

A process that has written one often does not end by itself: threads wait for a device that does not
answer, or for an abort of NCCL that hangs. https://github.com/NVIDIA/nccl/issues/992
"""

from __future__ import annotations

import re

_FAULTS = re.compile(
    rb"CUDA error[:(]"  # torch and PaddlePaddle; memory that is short says "out of memory"
    rb"|CUDA_ERROR_(?!OUT_OF_MEMORY)[A-Z_]+"  # XLA
    rb"|ncclUnhandledCudaError|ncclInternalError|ncclRemoteError"
    rb"|ProcessGroupNCCL\b.*\bwatchdog thread terminated with exception"
)
_MAX_LINE = 4_096
_END_OF_LINE = re.compile(rb"[\r\n]+")


class ErrorOutput:
    """The stderr of a process: its newest line, and the first one that reports a fault of the device."""

    def __init__(self) -> None:
        self._rest = b""
        self.last_line = ""
        """The newest line that is not empty."""
        self.fault = ""
        """The first line that names a fault of the device; "" while there is none."""

    def add(self, chunk: bytes) -> None:
        """Adds bytes in the order in which they were written."""
        *lines, self._rest = _END_OF_LINE.split(self._rest + chunk)
        for line in lines:
            self._see(line)
        if len(self._rest) > _MAX_LINE:
            self._see(self._rest)
            self._rest = b""

    def end(self) -> None:
        """Adds the last line, if nothing has ended it."""
        self._see(self._rest)
        self._rest = b""

    def _see(self, line: bytes) -> None:
        text = line[:_MAX_LINE].decode(errors="replace").strip()
        if not text:
            return
        self.last_line = text
        if not self.fault and _FAULTS.search(line):
            self.fault = text
