"""The adapter of PaddlePaddle, version 3, on CPUs; the extra `edl-sdk[paddle]` installs it.

Synchronous training exchanges one flat gradient of float32 numbers; parameter servers get the
gradients of dense parameters by name and those of sparse embeddings row by row.
"""

from __future__ import annotations

from typing import Any

from edl.model.calls import Calls
from edl.paddle.replica import PaddleReplica
from edl.paddle.worker import PaddleWorker

__all__ = ["PaddleReplica", "PaddleWorker", "replica", "worker"]


def replica(made: Any, calls: Calls) -> PaddleReplica:
    """As in `edl.model.protocols.Home`."""
    return PaddleReplica(made, calls)


def worker(made: Any, calls: Calls, seed: int) -> PaddleWorker:
    """As in `edl.model.protocols.Home`."""
    return PaddleWorker(made, calls, seed)
