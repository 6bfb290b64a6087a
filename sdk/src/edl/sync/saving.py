"""Checkpoints of a group: written by the member of rank 0 during training, read at its start.

A checkpoint holds the same as a newcomer receives from other members, in case there are none.
"""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edl.data.checkpoints import Checkpoint, latest_checkpoint, save_checkpoint
from edl.errors import CheckpointError, EdlError, one_line
from edl.master import protocol
from edl.master.leases import LeaseTable
from edl.sync.group_progress import GroupProgress
from edl.sync.group_session import CheckpointPermit
from edl.sync.replica import State

log = logging.getLogger("edl")

_ARRAYS, _ABOUT = "arrays.npz", "training.json"


class StateFiles(Protocol):
    """The files of a checkpoint in which a state's arrays are."""

    def write(self, folder: Path, state: State) -> None:
        """Writes the arrays of a state."""
        ...

    def read(self, checkpoint: Checkpoint, extra: dict[str, Any]) -> State:
        """Reads the arrays, for a state with this `extra`.

        Raises:
            CheckpointError: They cannot be read.
        """
        ...


class NpzFiles:
    """One archive of numpy."""

    def write(self, folder: Path, state: State) -> None:
        """As in `StateFiles`."""
        # no keyword `allow_pickle`: numpy before 2.1 saved it as an array
        arrays: dict[str, Any] = state.arrays
        np.savez(folder / _ARRAYS, **arrays)

    def read(self, checkpoint: Checkpoint, extra: dict[str, Any]) -> State:
        """As in `StateFiles`."""
        return State(checkpoint.arrays(), extra)


class CheckpointWriter:
    """Writes one checkpoint at a time, in a thread; skips those that come during a write."""

    def __init__(self, folder: Path, files: StateFiles) -> None:
        self._folder, self._files = folder, files
        self._thread: threading.Thread | None = None

    def save(
        self, state: State, about: protocol.Json, permit: CheckpointPermit, *, wait: bool = False
    ) -> None:
        """Copies the state and writes it.

        Args:
            state: Of the replica; may change after the call.
            about: The group's progress.
            permit: The leader's; closed here.
            wait: Whether to wait for a write under way, and until this one is written.
        """
        if wait:
            self.close()
        elif self._thread is not None and self._thread.is_alive():
            log.info("step %s: no checkpoint, one is still being written", about["step"])
            permit.close()
            return
        snapshot = State(
            {name: np.array(array) for name, array in state.arrays.items()}, state.extra
        )
        self._thread = threading.Thread(
            target=self._write, args=(snapshot, about, permit), name="edl-checkpoint", daemon=True
        )
        self._thread.start()
        if wait:
            self.close()

    def close(self) -> None:
        """Waits until the current write ends."""
        if self._thread is not None:
            self._thread.join()

    def _write(self, state: State, about: protocol.Json, permit: CheckpointPermit) -> None:
        def into(folder: Path) -> None:
            self._files.write(folder, state)
            text = json.dumps({**about, "extra": state.extra})
            (folder / _ABOUT).write_text(text, encoding="utf-8")

        try:
            save_checkpoint(self._folder, into, step=about["step"], member=permit)
        except EdlError as error:
            log.warning("could not save a checkpoint at step %s: %s", about["step"], error)
        finally:
            permit.close()


def newest(
    folder: Path, files: StateFiles, after: int = -1, job: str = ""
) -> tuple[State, protocol.Json] | None:
    """Reads the newest complete checkpoint of a folder: the state and the group's progress.

    Args:
        folder: Of checkpoints.
        files: As which it was written.
        after: Only checkpoints of a later step count.
        job: The name of this job: the position in the data of another job's does not count.

    Raises:
        CheckpointError: It is not a checkpoint of a synchronous job.
    """
    checkpoint = latest_checkpoint(folder)
    if checkpoint is None or checkpoint.step <= after:
        return None
    state, about = _read(checkpoint, files)
    return state, about if checkpoint.job == job else {**about, "data": None}


def _read(checkpoint: Checkpoint, files: StateFiles) -> tuple[State, protocol.Json]:
    try:
        about = json.loads((checkpoint.path / _ABOUT).read_bytes())
        GroupProgress().load({**about, "book": LeaseTable().dump()})  # names what is damaged
        return files.read(checkpoint, about.pop("extra")), about
    except (OSError, ValueError, LookupError, TypeError, RecursionError, AttributeError) as error:
        raise CheckpointError(
            f"{checkpoint.path} is not a checkpoint of a synchronous job ({one_line(error)}): name "
            "another folder, or remove it"
        ) from error
