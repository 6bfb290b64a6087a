"""A server without network, and calls to it."""

from dataclasses import asdict
from typing import Any

import numpy as np
from edl_protocol.frames import Frame
from edl_protocol.pserver import Enter, Model, Push, Settle

from pserver import frames, shard_codec
from pserver.checkpoint import CheckpointName, StoredCheckpoint
from pserver.server import ParameterServer, ServerIdentity
from runtime.call_checks import check_fields
from tests.pserver.builders import ALL, Json, make_shard, model, push

WHO: Json = {"trainer": "t", "incarnation": "i"}


def make_server(index: int = 0, **changes: Any) -> ParameterServer:
    """One of two."""
    fields = {"max_bytes": None, "generation": 0, "checkpoints": ()}
    return ParameterServer(ServerIdentity("digits", index, 2), **(fields | changes))


def stored_checkpoint(
    generation: int = 1, version: int = 5, model_: Model | None = None
) -> StoredCheckpoint:
    """A checkpoint on the disk."""
    return StoredCheckpoint(CheckpointName(generation, version, 2), 50, model_ or model())


def file() -> Frame:
    """A shard file after one push of ones."""
    shard = make_shard()
    shard.push(push(1))
    about = {"job": "digits", "index": 0, "of": 2, "generation": 1, "version": 5}
    meta, arrays = shard_codec.snapshot(shard, about)
    return frames.decode(b"".join(frames.encode(meta, arrays)))


def settle_request(generation: int = 1, ticket: int = 1, **changes: Any) -> Settle:
    """A call that starts a generation."""
    fields = {
        **WHO,
        "generation": generation,
        "ticket": ticket,
        "model": asdict(model()),
        "pieces": [asdict(piece) for piece in ALL],
        "checkpoint": None,
    }
    return check_fields(Settle, fields | changes)


def load_nothing(_: CheckpointName) -> list[Frame]:
    """No file is read."""
    raise AssertionError("there is nothing to read")


ZEROS = np.zeros(8, np.float32)


def settle(server: ParameterServer, **changes: Any) -> Json:
    """Starts a generation with zeros."""
    return server.settle(settle_request(**changes), ZEROS, load_nothing, 0.0)


def push_ones(server: ParameterServer, number: int = 1, **changes: Any) -> Json:
    """The answer to a push of ones."""
    fields = {**WHO, "generation": 1, "number": number, "version": 0, "records": 10}
    body = check_fields(Push, fields | changes)
    return server.serving_at(body.generation).push(body, {"dense": np.ones(8, np.float32)})[0]


def enter(server: ParameterServer, generation: int, **changes: Any) -> Json:
    """The answer to a trainer that joins from a generation."""
    return server.enter(check_fields(Enter, {**WHO, "generation": generation, **changes}))
