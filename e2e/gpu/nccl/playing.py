"""Plays the parts of a cell one after another, and records what they came to."""

from __future__ import annotations

from collections.abc import Sequence

from e2e.gpu.cell import Run
from e2e.gpu.nccl.rounds import Part, Session


def play_parts(
    run: Run, parts: Sequence[Part], *, limit_s: float, part_s: float, beside: Sequence[Part] = ()
) -> None:
    """Plays all parts, or those up to the first in which no group forms.

    Args:
        run: Fails when all parts were tried.
        parts: Those that must succeed.
        limit_s: For the whole cell.
        part_s: For each part, once its processes are ready.
        beside: Played afterwards; a failure of theirs is only recorded.
    """
    failures = []
    with Session(
        [*parts, *beside], run.folder, run.device, limit_s=limit_s, part_s=part_s
    ) as session:
        run.record(**session.versions())
        for part in (*parts, *beside):
            outcome = session.play(part)
            run.record(**outcome.named())
            if outcome.failures:
                run.record(**{f"{part.name}_failure": outcome.failure()})
                failures += [outcome.failure()] if part in parts else []
            if not outcome.formed:
                break
    run.check(not failures, " | ".join(failures))
