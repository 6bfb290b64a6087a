"""Cell: NCCL called directly, on one card. Does a group form, and does it survive a lost rank?"""

from __future__ import annotations

from e2e.gpu.cell import Run
from e2e.gpu.nccl.playing import play_parts
from e2e.gpu.nccl.rounds import Part

PARTS = (Part("raw", 2, "kill"), Part("raw", 3, "kill"), Part("raw", 3, "freeze"))
BESIDE = (Part("raw-shrink", 3, "kill"),)
"""To compare its `form_again_s` with that of a fresh communicator."""


def play(run: Run) -> None:
    """Aborts communicators of 2 and 3 ranks after a loss, and forms new ones."""
    play_parts(run, PARTS, limit_s=57, part_s=14, beside=BESIDE)
