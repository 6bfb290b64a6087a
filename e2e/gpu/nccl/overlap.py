"""Cell: a second communicator is formed on a thread while sums go on in the first one."""

from __future__ import annotations

from e2e.gpu.cell import Run
from e2e.gpu.nccl.playing import play_parts
from e2e.gpu.nccl.rounds import Part

PARTS = (Part("raw", 2),)


def play(run: Run) -> None:
    """Measures sums before and during the formation, its seconds, and the memory of both."""
    play_parts(run, PARTS, limit_s=28, part_s=18)
