"""What the leader tells the others now and then: the next steps, and what is settled. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from edl.sync.shares import Plan, Span
from edl.wire import Lease

STEPS = 16
"""Of a chunk, at most."""


@dataclass(frozen=True)
class Chunk:
    """Read alike by every member."""

    plans: tuple[Plan, ...] = ()
    """None where nothing can be said yet."""
    settled: tuple[str, ...] = ()
    """Tasks of which nobody needs to know any more."""
    over: bool = False
    """Whether all records were trained."""


def write(plans: Sequence[Plan], settled: Sequence[str], *, over: bool) -> bytes:
    """As it is sent."""
    leases: dict[Lease, int] = {}
    told = [
        [
            plan.name,
            [[leases.setdefault(s.lease, len(leases)), s.start, s.count] for s in plan.spans],
        ]
        for plan in plans
    ]
    body = {
        "plans": told,
        "leases": [vars(lease) for lease in leases],  # `asdict` copies deeply, at every step
        "settled": list(settled),
        "over": over,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def read(raw: bytes) -> Chunk:
    """What `write` wrote."""
    body = json.loads(raw)
    leases = [Lease(**one) for one in body["leases"]]
    plans = tuple(
        Plan(name, tuple(Span(leases[place], start, count) for place, start, count in spans))
        for name, spans in body["plans"]
    )
    return Chunk(plans, tuple(body["settled"]), body["over"])
