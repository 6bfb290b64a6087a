"""What a round does when none of its members has the newest model.

They have just started, or were frozen or cut off while others trained. Those others have ended or
are lost: if they were alive, a later round would include them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edl import wire
from edl.book import Book
from edl.errors import CheckpointError, MasterError, RoundOver, TrainingError
from edl.sync.leader import GROUP
from edl.sync.saving import newest

if TYPE_CHECKING:
    from edl.sync.engine import Engine

log = logging.getLogger("edl")


@dataclass(frozen=True)
class Fallback:
    """What the member of rank 0 goes on from."""

    term: int
    """The newest whose model is lost."""
    moved: bool
    """Whether from a checkpoint that is newer than what the members have."""
    why: str


def load_newest(engine: Engine, after: int = -1) -> bool:
    """Loads the newest checkpoint that is later than step `after`.

    Returns:
        Whether there was one.

    Raises:
        CheckpointError: It is of another model: the job fails.
    """
    folder = engine.options.checkpoints
    try:
        found = None if folder is None else newest(folder, after)
        if found is None:
            return False
        state, about = found
        engine.replica.load(state)
    except CheckpointError as error:
        engine.fail(str(error))
        raise
    # what this member had trained is not in that model: others may lease it
    engine.course.load({**about, "book": Book().dump()})
    log.info("going on from the checkpoint of step %d in %s", engine.course.step, folder)
    return True


def fall_back(engine: Engine, members: Collection[str]) -> Fallback:
    """Finds out what became of the newest model.

    Args:
        engine: Of the member of rank 0.
        members: Of this round, none of which has that model.

    Raises:
        TrainingError: All data was trained, and the model is lost altogether.
        RoundOver: Others have trained all data, and have exported the model or are about to; or
            the master is away.
    """
    status, course = engine.status(), engine.course
    progress = status.get("datasets", {}).get(engine.dataset.name)
    if progress is None:
        raise RoundOver("who has the newest model is not known")
    trained = _is_trained(status, progress)
    if status["state"] == "done" or (trained and status["trainers"].keys() - {*members, GROUP}):
        engine.come_late()
        raise RoundOver("others have trained all data")
    was_away = course.term > 0
    whose = "all other trainers" if was_away else "all trainers"
    moved = was_away and load_newest(engine, course.step)
    if trained and not moved and (was_away or not course.step):
        text = f"the trained model was lost with {whose}, and there is no checkpoint"
        if was_away:
            text = f"{text} that is newer than step {course.step}, which this one has"
        engine.fail(text)
        raise TrainingError(f"{text}: start the job again, with checkpoints")
    return Fallback(progress["term"], moved, f"{whose} were lost: going on from step {course.step}")


def tell_setback(engine: Engine, found: Fallback) -> None:
    """Reports what had been trained since to the master, and is lost.

    What was reported before is missing in this model for ever: only the rest is new. The event's
    name makes a second report of the same loss harmless.
    """
    status = engine.status()
    progress = status.get("datasets", {}).get(engine.dataset.name, {})
    lost = int(progress.get("done_records", 0)) - engine.course.records
    lost -= int(status.get("setbacks", {}).get("records", 0))
    if lost <= 0:
        return
    steps = -(-lost // engine.options.batch_size)
    log.warning("%s; about %d steps (%d records) are lost", found.why, steps, lost)
    try:
        control = engine.member.control()
        control.setback(f"term-{found.term}", found.why, steps=steps, records=lost)
    except MasterError as error:
        log.warning("the master did not hear of what was lost: %s", error)


def _is_trained(status: wire.Json, progress: wire.Json) -> bool:
    """Whether nothing is left to train on, or the job had its steps."""
    most = status.get("max_steps")
    return bool(progress["complete"]) or (most is not None and status["steps"] >= most)
