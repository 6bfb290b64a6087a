"""Starts a generation of the servers.

The trainer that holds server 0's ticket sends initial parameters to all servers, or makes them restore
the newest checkpoint that all of them have.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from edl.master.protocol import Json
from edl.servers.connection import PserverConnection
from edl.servers.fan_out import FanOut
from edl.servers.frames import encode
from edl.servers.layout import Layout
from edl_protocol.fields import to_json
from edl_protocol.pserver import Settle

log = logging.getLogger("edl")
SETTLE_S = 120.0
"""Time limit for a server to read its part of a checkpoint."""
_NEWEST = 5


class GenerationStart(NamedTuple):
    """The state from which a new generation starts."""

    generation: int
    checkpoint: Optional[Json]  # noqa: UP045 - evaluated at runtime, and Python 3.9 has no `|`
    """The checkpoint to restore; None starts from initial parameters."""
    reason: str


def plan_start(states: Sequence[Json], newest_seen: int) -> GenerationStart:
    """Decides how to start servers that do not all serve the same generation. Pure.

    Args:
        states: States of all servers, in order.
        newest_seen: The newest generation that this trainer knows.
    """
    generation = max([newest_seen, *(state["generation"] for state in states)])
    common = set.intersection(*(_checkpoints(state) for state in states))
    checkpoint = dict(zip(("generation", "version", "of"), max(common))) if common else None
    return GenerationStart(generation + 1, checkpoint, _reason(states, generation, checkpoint))


def start_generation(
    fan: FanOut, layout: Layout, initial: Sequence[Any], start: GenerationStart, header: Json
) -> None:
    """Starts the generation at all servers, server 0 last: once it is ready, all others are.

    Args:
        fan: Calls all servers.
        layout: The layout of the model.
        initial: Initial parameters, one vector per server.
        start: The result of `plan_start`.
        header: Trainer, incarnation, model, ticket, and the last position of the servers.
    """

    def call(connection: PserverConnection, server: int) -> Json:
        pieces = [to_json(piece) for piece in layout.pieces[server]]
        meta = {**header, **start._asdict(), "pieces": pieces}
        arrays = {} if start.checkpoint is not None else {"dense": initial[server]}
        return connection.send_frame(Settle.PATH, encode(meta, arrays), SETTLE_S)

    fan.call_coordinator_last(call)


def _checkpoints(state: Json) -> set[tuple[int, int, int]]:
    """Returns generation, version and number of servers of each checkpoint that a server has."""
    return {
        (checkpoint["generation"], checkpoint["version"], checkpoint["of"])
        for checkpoint in state["have"]
    }


def _reason(states: Sequence[Json], generation: int, checkpoint: Json | None) -> str:
    """Returns why the generation starts, for logs and the master; "" for the first generation."""
    if not generation:
        return ""
    restarted = [str(state["index"]) for state in states if not state["ready"]]
    if len(restarted) > _NEWEST:
        restarted = [*restarted[:_NEWEST], f"{len(restarted) - _NEWEST} more"]
    cause = (
        f"parameter servers {', '.join(restarted)} restarted"
        if restarted
        else "parameter servers served different generations"
    )
    origin = "initial parameters" if checkpoint is None else f"version {checkpoint['version']}"
    return f"{cause}: all continue from {origin}"
