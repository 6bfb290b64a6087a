"""How servers come to serve one generation.

A trainer with server 0's ticket gives them first parameters, or sends all of them back to the newest
checkpoint that all have.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from edl.servers.fan import Fan
from edl.servers.frames import encode
from edl.servers.layout import Layout
from edl.servers.link import Link

log = logging.getLogger("edl")

Json = dict[str, Any]
SETTLE_S = 120.0
"""For a server to read its part of a checkpoint."""
_NEWEST = 5


class Begin(NamedTuple):
    """A generation about to begin."""

    generation: int
    checkpoint: Optional[Json]  # noqa: UP045 - evaluated, and Python 3.9 has no other way
    """None begins with first parameters."""
    reason: str


def plan(states: Sequence[Json], known: int) -> Begin:
    """What to do with servers of which not all serve the same generation. Pure.

    Args:
        states: Of all servers, in order.
        known: The newest generation that this trainer has seen.
    """
    generation = max([known, *(state["generation"] for state in states)])
    common = set.intersection(*(_names(state) for state in states))
    checkpoint = None
    if common:
        newest = max(common)
        checkpoint = dict(zip(("generation", "version", "of"), newest))
    return Begin(generation + 1, checkpoint, _reason(states, generation, checkpoint))


def settle(fan: Fan, layout: Layout, first: Sequence[Any], begin: Begin, told: Json) -> None:
    """Begins it at all servers, server 0 last: whoever sees that one ready finds all others so.

    Args:
        fan: To all servers.
        layout: Of the model.
        first: First parameters, a vector for each server.
        begin: What to do.
        told: Trainer, incarnation, model, ticket, and how far this trainer knows servers to be.
    """

    def act(link: Link, server: int) -> Json:
        pieces = [piece._asdict() for piece in layout.pieces[server]]
        meta = {**told, **begin._asdict(), "pieces": pieces}
        arrays = {} if begin.checkpoint is not None else {"dense": first[server]}
        return link.tell("/v1/settle", encode(meta, arrays), SETTLE_S)

    others = list(range(1, len(fan)))
    if others:
        fan.each(act, others)
    fan.each(act, [0])


def _names(state: Json) -> set[tuple[int, int, int]]:
    return {(one["generation"], one["version"], one["of"]) for one in state["have"]}


def _reason(states: Sequence[Json], generation: int, checkpoint: Json | None) -> str:
    """For logs and for the master; "" for the very first begin."""
    if not generation:
        return ""
    gone = [str(state["index"]) for state in states if not state["ready"]]
    if len(gone) > _NEWEST:
        gone = [*gone[:_NEWEST], f"{len(gone) - _NEWEST} more"]
    what = f"parameter servers {', '.join(gone)} began anew" if gone else "parameter servers differ"
    where = "first parameters" if checkpoint is None else f"version {checkpoint['version']}"
    return f"{what}: all go on from {where}"
