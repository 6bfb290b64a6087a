"""Recognizes log lines in which a framework reports a failed device or communicator (pure).

A process that has written such a line often does not end, because its threads wait for a device
that does not answer, or because aborting NCCL hangs. See https://github.com/NVIDIA/nccl/issues/992.
"""

from __future__ import annotations

import re

_FAULTS = re.compile(
    rb"CUDA error[:(]"  # torch and PaddlePaddle; errors for lack of memory read "out of memory"
    rb"|CUDA_ERROR_(?!OUT_OF_MEMORY)[A-Z_]+"  # XLA
    rb"|ncclUnhandledCudaError|ncclInternalError|ncclRemoteError"
    rb"|ProcessGroupNCCL\b.*\bwatchdog thread terminated with exception"
)
_MAX_LINE = 4_096
_END_OF_LINE = re.compile(rb"[\r\n]+")


class ErrorOutput:
    """Tracks the stderr of a process: its last line, and the first line that reports a device fault."""

    def __init__(self) -> None:
        self._rest = b""
        self.last_line = ""
        """The last line that is not empty."""
        self.fault = ""
        """The first line that reports a device fault; "" if there is none."""

    def add(self, chunk: bytes) -> None:
        """Adds bytes in the order in which they were written."""
        *lines, self._rest = _END_OF_LINE.split(self._rest + chunk)
        for line in lines:
            self._see(line)
        if len(self._rest) > _MAX_LINE:
            self._see(self._rest)
            self._rest = b""

    def end(self) -> None:
        """Adds the last line, if it has no line break."""
        self._see(self._rest)
        self._rest = b""

    def _see(self, line: bytes) -> None:
        text = line[:_MAX_LINE].decode(errors="replace").strip()
        if not text:
            return
        self.last_line = text
        if not self.fault and _FAULTS.search(line):
            self.fault = text
