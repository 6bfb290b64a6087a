"""Makes the workers of a `DataLoader` end with their trainer, because forked workers share its sockets.

While a killed trainer's worker still runs, other trainers do not see that its connections have ended.
torch's workers check for their parent only every 5 s.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

_PR_SET_PDEATHSIG = 1


class EndWithParent:
    """A `worker_init_fn` that makes the kernel kill the worker when its parent ends."""

    def __init__(self, then: Callable[[int], Any] | None, parent: int) -> None:
        """Does nothing yet.

        Args:
            then: The program's `worker_init_fn`, called afterwards; or None.
            parent: Process id of the trainer, the worker's parent.
        """
        self._then, self._parent = then, parent

    def __call__(self, worker: int) -> None:
        """Called in a worker when it starts."""
        if sys.platform == "linux" and os.getppid() == self._parent:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != self._parent:  # the parent ended before the call
                os._exit(1)
        if self._then is not None:
            self._then(worker)


def end_with_parent(loader: Any) -> None:
    """Makes the workers of a `DataLoader` end with this process; called before any worker runs."""
    then = loader.worker_init_fn
    if loader.num_workers and not isinstance(then, EndWithParent):
        loader.worker_init_fn = EndWithParent(then, os.getpid())
