"""The leader's message to all members: the next steps, and settled tasks (pure)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from edl.master import protocol
from edl.master.protocol import Lease
from edl.sync.plans import Plan, Span

STEPS = 16
"""Largest number of plans in a message."""


@dataclass(frozen=True)
class PlanMessage:
    """The decoded message, equal in every member."""

    plans: tuple[Plan, ...] = ()
    """Empty if the leader has no records now."""
    settled: tuple[str, ...] = ()
    """Tasks that members stop tracking."""
    over: bool = False
    """Whether all records were trained."""
    data: protocol.Json | None = None
    """The position in the data, if the leader has renewed it."""


def encode(
    plans: Sequence[Plan],
    settled: Sequence[str],
    *,
    over: bool,
    data: protocol.Json | None = None,
) -> bytes:
    """Encodes a message; each lease is written once, plans refer to it by index."""
    leases: dict[Lease, int] = {}
    packed_plans = [
        [
            plan.name,
            [[leases.setdefault(s.lease, len(leases)), s.start, s.count] for s in plan.spans],
        ]
        for plan in plans
    ]
    body = {
        "plans": packed_plans,
        # `asdict` would make a deep copy in every step
        "leases": [vars(lease) for lease in leases],
        "settled": list(settled),
        "over": over,
        **({} if data is None else {"data": data}),
    }
    return json.dumps(body, separators=(",", ":")).encode()


def decode(raw: bytes) -> PlanMessage:
    """Decodes a message that `encode` returned."""
    body = json.loads(raw)
    leases = [Lease(**fields) for fields in body["leases"]]
    plans = tuple(
        Plan(name, tuple(Span(leases[index], start, count) for index, start, count in spans))
        for name, spans in body["plans"]
    )
    return PlanMessage(plans, tuple(body["settled"]), body["over"], body.get("data"))
