"""Writes and reads a group's checkpoints: the leader or all members write, the first leader reads.

A checkpoint holds everything that a newcomer receives from other members.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edl.data.checkpoints import Checkpoint, latest_checkpoint, save_checkpoint
from edl.errors import CheckpointError, EdlError, one_line
from edl.master import protocol
from edl.master.leases import LeaseTable
from edl.overriding import override
from edl.sync.group_progress import GroupProgress
from edl.sync.group_session import CheckpointPermit
from edl.sync.replica import GroupModel, State
from edl.sync.shared_write import SharedWrite

log = logging.getLogger("edl")

_ARRAYS, _ABOUT = "arrays.npz", "training.json"


class Share(Protocol):
    """A copy of one member's part of a checkpoint."""

    extra: dict[str, Any]
    """The entries of the state that are not arrays."""

    def write(self, folder: Path) -> protocol.Json:
        """Writes the part; returns its result for `finish`."""
        ...

    def finish(self, folder: Path, results: Sequence[protocol.Json]) -> None:
        """Completes the files, given all members' results in order of rank; called by one member."""
        ...


class StateFiles(Protocol):
    """The format of the files that hold a state's arrays in a checkpoint."""

    is_sharded: bool
    """Whether each member writes a part of the files."""

    def stage(self, replica: GroupModel, rank: int, count: int) -> Share:
        """Copies one member's part of the state: part `rank` of `count` parts."""
        ...

    def read(self, checkpoint: Checkpoint, extra: dict[str, Any]) -> State:
        """Reads the arrays, for a state with this `extra`.

        Raises:
            CheckpointError: The files cannot be read.
        """
        ...


class NpzFiles(StateFiles):
    """A single numpy archive, which the leader writes."""

    is_sharded = False

    @override
    def stage(self, replica: GroupModel, rank: int, count: int) -> NpzShare:  # noqa: ARG002 - one member writes all
        return NpzShare(replica.state())

    @override
    def read(self, checkpoint: Checkpoint, extra: dict[str, Any]) -> State:
        return State(checkpoint.arrays(), extra)


class NpzShare(Share):
    """A copy of all arrays."""

    def __init__(self, state: State) -> None:
        self.extra = state.extra
        # no keyword `allow_pickle`: numpy before 2.1 saved it as an array
        self._arrays: dict[str, Any] = {n: np.array(array) for n, array in state.arrays.items()}

    @override
    def write(self, folder: Path) -> protocol.Json:
        np.savez(folder / _ARRAYS, **self._arrays)
        return {}

    @override
    def finish(self, folder: Path, results: Sequence[protocol.Json]) -> None:
        """Does nothing: the archive is complete."""


class CheckpointWriter:
    """Writes one checkpoint at a time, in a thread; skips a checkpoint that is due during a write."""

    def __init__(self, folder: Path, files: StateFiles) -> None:
        self._folder, self._files = folder, files
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._is_writing = False
        self._skipped: list[SharedWrite] = []
        """Skipped writes that the other members still have to be told about."""
        self._left_out: list[str] = []
        """Keys of skipped writes that the other members know about."""

    def save(
        self,
        replica: GroupModel,
        progress: protocol.Json,
        shared: SharedWrite,
        permit: CheckpointPermit | None,
        *,
        wait: bool = False,
    ) -> None:
        """Copies this member's part of the state, and writes it.

        Args:
            replica: The model; it may change after the call.
            progress: The group's progress.
            shared: This member's part in the write; closed here.
            permit: The leader's permit, closed here; None in other members.
            wait: Whether to wait until the current write has ended, and then until this one is
                complete.
        """
        if wait:
            self.close()
        if self._leave_out(shared):
            log.info(
                "step %s: checkpoint skipped, the previous one is still being written",
                progress["step"],
            )
            if permit is not None:
                permit.close()
            return
        share = self._files.stage(replica, shared.rank, shared.count)
        write = _Write(self._folder, share, progress, shared, wait=wait)
        self._is_writing = True
        self._thread = threading.Thread(
            target=self._run, args=(write, permit), name="edl-checkpoint", daemon=True
        )
        self._thread.start()
        if wait:
            self.close()

    def close(self) -> None:
        """Waits until the current write ends."""
        if self._thread is not None:
            self._thread.join()

    def _leave_out(self, shared: SharedWrite) -> bool:
        """Returns whether to skip this write because another is running; `_run` reports it later."""
        with self._lock:
            if self._is_writing:
                self._skipped.append(shared)
            return self._is_writing

    def _run(self, write: _Write, permit: CheckpointPermit | None) -> None:
        try:
            if permit is None:
                write.help()
            else:
                left_out, self._left_out = self._left_out, []
                write.lead(permit, left_out)
        except EdlError as error:
            log.warning("could not save a checkpoint at step %s: %s", write.step, error)
        finally:
            with self._lock:
                skipped, self._skipped, self._is_writing = self._skipped, [], False
            for shared in (write.shared, *skipped):
                shared.close()
            if permit is not None:
                self._left_out += [key for shared in skipped for key in shared.keys]
                permit.close()


class _Write:
    """One member's part in the write of one checkpoint."""

    def __init__(
        self,
        folder: Path,
        share: Share,
        progress: protocol.Json,
        shared: SharedWrite,
        *,
        wait: bool,
    ) -> None:
        self._folder, self._share, self._progress = folder, share, progress
        self.shared, self._wait = shared, wait
        self.step: int = progress["step"]

    def lead(self, permit: CheckpointPermit, left_out: Sequence[str]) -> None:
        """Writes the leader's part, waits for the others, and completes the checkpoint.

        Args:
            permit: The permit to write it.
            left_out: Keys of skipped checkpoints, see `SharedWrite.gather`.
        """

        def into(folder: Path) -> None:
            self.shared.announce(folder.name)
            results = self.shared.gather(self._share.write(folder), left_out)
            self._share.finish(folder, results)
            text = json.dumps({**self._progress, "extra": self._share.extra})
            (folder / _ABOUT).write_text(text, encoding="utf-8")

        save_checkpoint(self._folder, into, step=self.step, member=permit)

    def help(self) -> None:
        """Writes this member's part into the folder that the leader announces."""
        name = self.shared.announced()
        if name:
            try:
                self.shared.report(self._share.write(self._folder / name))
            except Exception as error:
                reason = f"could not write its part: {one_line(error)}"
                self.shared.fail(reason)
                raise CheckpointError(f"{self._folder}: this trainer {reason}") from error
            if self._wait:
                self.shared.wait_for_end()


def newest(
    folder: Path, files: StateFiles, after: int = -1, job: str = ""
) -> tuple[State, protocol.Json] | None:
    """Reads the newest complete checkpoint of a folder: the state and the group's progress.

    Args:
        folder: The folder of checkpoints.
        files: The format of the checkpoint.
        after: Checkpoints of this step and earlier steps are ignored.
        job: The name of this job; the position in the data is ignored if another job wrote the
            checkpoint.

    Raises:
        CheckpointError: The newest checkpoint does not belong to a synchronous job.
    """
    checkpoint = latest_checkpoint(folder)
    if checkpoint is None or checkpoint.step <= after:
        return None
    state, progress = _read(checkpoint, files)
    return state, progress if checkpoint.job == job else {**progress, "data": None}


def _read(checkpoint: Checkpoint, files: StateFiles) -> tuple[State, protocol.Json]:
    try:
        progress = json.loads((checkpoint.path / _ABOUT).read_bytes())
        GroupProgress().load(
            {**progress, "book": LeaseTable().dump()}
        )  # raises an error that names a damaged field
        return files.read(checkpoint, progress.pop("extra")), progress
    except (OSError, ValueError, LookupError, TypeError, RecursionError, AttributeError) as error:
        raise CheckpointError(
            f"{checkpoint.path} is not a checkpoint of a synchronous job ({one_line(error)}): name "
            "another folder, or remove it"
        ) from error
