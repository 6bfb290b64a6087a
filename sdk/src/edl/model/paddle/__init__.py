"""The adapter for PaddlePaddle 3 on CPUs; the extra `edl-sdk[paddle]` installs PaddlePaddle.

In synchronous training, trainers exchange one flat gradient of float32 numbers. Parameter servers receive
the gradients of dense parameters by name and the gradients of sparse embeddings row by row.
"""

from __future__ import annotations

from typing import Any

from edl.model.paddle.replica import PaddleReplica
from edl.model.paddle.worker import PaddleWorker
from edl.model.user_code import UserCode

__all__ = ["PaddleReplica", "PaddleWorker", "replica", "worker"]


def replica(layer: Any, user_code: UserCode) -> PaddleReplica:
    """Returns a replica for the object returned by `model()`."""
    return PaddleReplica(layer, user_code)


def worker(layer: Any, user_code: UserCode, seed: int) -> PaddleWorker:
    """Returns a worker for the object returned by `model()`; `seed` determines initial embedding rows."""
    return PaddleWorker(layer, user_code, seed)
