"""Chooses the state to continue from when no member of a round has the newest model.

The members have just started, or were frozen or disconnected while others trained. The others have
ended or are lost: otherwise a later round would include them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from edl.errors import CheckpointError, MasterError, RoundOver, TrainingError
from edl.master.leases import LeaseTable
from edl.sync.group_member import GroupMember
from edl.sync.group_session import GROUP
from edl.sync.saving import newest

log = logging.getLogger("edl")


@dataclass(frozen=True)
class Fallback:
    """The state from which the member of rank 0 continues."""

    term: int
    """The term of the lost model."""
    from_checkpoint: bool
    """Whether the state comes from a checkpoint that is newer than the members' states."""
    reason: str


def load_newest_checkpoint(member: GroupMember, after: int = -1) -> bool:
    """Loads the newest checkpoint that is later than step `after`.

    Returns:
        Whether there was such a checkpoint.

    Raises:
        CheckpointError: The checkpoint is of another model; the job fails.
    """
    folder = member.options.checkpoints
    try:
        checkpoint = (
            None if folder is None else newest(folder, member.files, after, member.session.job)
        )
        if checkpoint is None:
            return False
        state, position = checkpoint
        member.replica.load(state)
    except CheckpointError as error:
        member.fail_job(str(error))
        raise
    # the loaded model lacks the records that this member had trained, so others may lease them
    member.progress.load({**position, "book": LeaseTable().dump()})
    log.info("continuing from the checkpoint of step %d in %s", member.progress.step, folder)
    return True


def fall_back(member: GroupMember, names: Collection[str]) -> Fallback:
    """Returns the state from which to continue, given that the newest model is lost.

    Args:
        member: The member of rank 0.
        names: Names of all members of this round.

    Raises:
        TrainingError: All data was trained, and no copy of the model is left.
        RoundOver: Other trainers have trained all data; or the master does not answer.
    """
    status, progress = member.status(), member.progress
    dataset = status.get("datasets", {}).get(member.dataset.name)
    if dataset is None:
        raise RoundOver("the member with the newest model is not known")
    max_steps = status.get("max_steps")
    has_all_steps = max_steps is not None and status["steps"] >= max_steps
    trained = bool(dataset["complete"]) or has_all_steps
    if status["state"] == "done" or (trained and status["trainers"].keys() - {*names, GROUP}):
        member.mark_late()
        raise RoundOver("others have trained all data")
    was_away = progress.term > 0
    whose = "all other trainers" if was_away else "all trainers"
    from_checkpoint = was_away and load_newest_checkpoint(member, progress.step)
    if trained and not from_checkpoint and (was_away or not progress.step):
        text = f"the trained model was lost with {whose}, and there is no checkpoint"
        if was_away:
            text = f"{text} that is newer than step {progress.step}, which this one has"
        member.fail_job(text)
        raise TrainingError(f"{text}: start the job again, with checkpoints")
    reason = f"{whose} were lost: continuing from step {progress.step}"
    return Fallback(dataset["term"], from_checkpoint, reason)


def report_rollback(member: GroupMember, fallback: Fallback) -> None:
    """Reports to the master the acknowledged records that the model no longer contains.

    They are not trained again, because the model's position in the data is not known. Records that were
    reported before are not reported again, and the event's name makes repeated reports harmless.
    """
    status = member.status()
    dataset = status.get("datasets", {}).get(member.dataset.name, {})
    lost = int(dataset.get("done_records", 0)) - member.progress.records
    lost -= int(status.get("setbacks", {}).get("records", 0))
    lost += int(dataset.get("redone_records", 0))  # counted as setbacks, but trained again
    if lost <= 0:
        return
    steps = -(-lost // member.options.batch_size)
    log.warning("%s; about %d steps (%d records) are lost", fallback.reason, steps, lost)
    try:
        control = member.session.control()
        control.report_rollback(f"term-{fallback.term}", fallback.reason, steps=steps, records=lost)
    except MasterError as error:
        log.warning("the lost records could not be reported to the master: %s", error)
