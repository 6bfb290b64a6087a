"""Loss curves of fleets in torch: that of one trainer, and how far others are from it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.sdk.sync.fleets import Fleet, Member

Json = dict[str, Any]
CLOSE = 1e-5
_END_S = 600.0


def losses_of(members: Sequence[Member]) -> dict[int, float]:
    """Step -> loss, which all members must agree on: exactly in one round.

    A step is made in two rounds if a member that was frozen completes it, and the others have made it again
    without that member; their sums differ by rounding.
    """
    losses: dict[int, float] = {}
    in_round: dict[tuple[int, int], float] = {}
    for step in (step for member in members for step in member.steps):
        loss = step["loss"]
        assert in_round.setdefault((step["step"], step["round"]), loss) == loss, step
        other = losses.setdefault(step["step"], loss)
        assert abs(loss - other) <= CLOSE * (1 + other), step
    return losses


def alone(folder: Path, options: Json) -> tuple[dict[int, float], Json]:
    """The curve and the last line of one trainer of a job with these options."""
    with Fleet(folder, options, program="tests.sdk.torch.program") as fleet:
        member = fleet.add()
        assert fleet.ended([member], _END_S)
        assert member.end is not None
        return losses_of([member]), member.end


def far_from(
    curve: Mapping[int, float], losses: Mapping[int, float]
) -> dict[int, tuple[float, float]]:
    """The steps at which losses differ from a curve by more than 1e-5, and both values."""
    return {
        step: (loss, curve[step])
        for step, loss in losses.items()
        if abs(loss - curve[step]) > CLOSE * (1 + curve[step])
    }
