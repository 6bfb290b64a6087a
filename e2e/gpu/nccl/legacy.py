"""Cell: fresh `ProcessGroupNCCL` groups of torch, on one card, after a loss."""

from __future__ import annotations

from e2e.gpu.cell import Run
from e2e.gpu.nccl.playing import play_parts
from e2e.gpu.nccl.rounds import Part

PARTS = tuple(
    Part("legacy", ranks, fault) for ranks, fault in ((2, "kill"), (3, "kill"), (3, "freeze"))
)


def play(run: Run) -> None:
    """Aborts groups of 2 and 3 ranks after a loss, and forms new ones."""
    play_parts(run, PARTS, limit_s=47, part_s=13)
