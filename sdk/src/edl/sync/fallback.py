"""What a round does when none of its members has the newest model.

Its members have just started, or were frozen or cut off while others trained. Those others have
ended or are lost: if they were alive, a later round would include them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from edl.errors import CheckpointError, MasterError, RoundOver, TrainingError
from edl.master import protocol
from edl.master.leases import LeaseTable
from edl.sync.group_member import GroupMember
from edl.sync.group_session import GROUP
from edl.sync.saving import newest

log = logging.getLogger("edl")


@dataclass(frozen=True)
class Fallback:
    """The state from which the member of rank 0 continues."""

    term: int
    """The newest term, whose model is lost."""
    from_checkpoint: bool
    """Whether the state is that of a checkpoint that is newer than the members' states."""
    reason: str


def load_newest_checkpoint(member: GroupMember, after: int = -1) -> bool:
    """Loads the newest checkpoint that is later than step `after`.

    Returns:
        Whether there was one.

    Raises:
        CheckpointError: It is of another model: the job fails.
    """
    folder = member.options.checkpoints
    try:
        checkpoint = (
            None if folder is None else newest(folder, member.files, after, member.session.job)
        )
        if checkpoint is None:
            return False
        state, about = checkpoint
        member.replica.load(state)
    except CheckpointError as error:
        member.fail_job(str(error))
        raise
    # what this member had trained is not in that model: others may lease it
    member.progress.load({**about, "book": LeaseTable().dump()})
    log.info("continuing from the checkpoint of step %d in %s", member.progress.step, folder)
    return True


def fall_back(member: GroupMember, names: Collection[str]) -> Fallback:
    """Decides from which state to continue, if the newest model is lost.

    Args:
        member: The one of rank 0.
        names: Of all members of this round, none of which has that model.

    Raises:
        TrainingError: All data was trained, and no copy of the model is left.
        RoundOver: Others have trained all data, and have exported the model or are about to; or
            the master is away.
    """
    status, progress = member.status(), member.progress
    dataset = status.get("datasets", {}).get(member.dataset.name)
    if dataset is None:
        raise RoundOver("the member with the newest model is not known")
    trained = _is_trained(status, dataset)
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
    """Reports to the master the acknowledged records that are not in the model any more.

    For a model of which the position in the data is not known: nothing is trained again. Records that were reported before stay missing and are not reported again. The event's name
    makes a second report of the same loss harmless.
    """
    status = member.status()
    dataset = status.get("datasets", {}).get(member.dataset.name, {})
    lost = int(dataset.get("done_records", 0)) - member.progress.records
    lost -= int(status.get("setbacks", {}).get("records", 0))
    lost += int(dataset.get("redone_records", 0))  # setbacks, too, but made good
    if lost <= 0:
        return
    steps = -(-lost // member.options.batch_size)
    log.warning("%s; about %d steps (%d records) are lost", fallback.reason, steps, lost)
    try:
        control = member.session.control()
        control.report_rollback(f"term-{fallback.term}", fallback.reason, steps=steps, records=lost)
    except MasterError as error:
        log.warning("the lost records could not be reported to the master: %s", error)


def _is_trained(status: protocol.Json, dataset: protocol.Json) -> bool:
    """Whether all records are trained, or the job has had its steps."""
    max_steps = status.get("max_steps")
    return bool(dataset["complete"]) or (max_steps is not None and status["steps"] >= max_steps)
