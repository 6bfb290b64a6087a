"""Snapshots of a program's state in memory, which `edl agent` keeps while its processes restart.

Snapshots add two lines to a training loop, and each costs one copy of the state; see docs/pytorch.md.
Without an agent, saving does nothing.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edl import clock
from edl.data import state_tree
from edl.data.snapshot_parts import OWN, Slots, SnapshotPart, reading
from edl.errors import CheckpointError, SettingError

log = logging.getLogger("edl")

FOLDER, ROUND, LIMIT = "EDL_SNAPSHOTS", "EDL_SNAPSHOT_ROUND", "EDL_SNAPSHOT_BYTES"
"""Environment variables that the agent sets for its processes."""
RESTORE = "restore"
"""Name of the file that lists the parts from which the processes of a round start."""
_WAIT_S, _POLL_S = 30.0, 0.01
"""How long a process waits for a slot that is still being copied, and the time between its checks."""


class Snapshot:
    """The newest snapshot that is still complete."""

    def __init__(self, folder: Path, parts: Sequence[SnapshotPart], rank: int) -> None:
        self.step = parts[0].step
        """The step after which the snapshot was saved."""
        self.count = len(parts)
        """Number of parts: 1, or for a sharded snapshot the number of processes that saved it."""
        self._folder, self._parts, self._rank = folder, parts, rank

    def state(self, rank: int | None = None) -> Any:
        """Reads a part of the snapshot; its tensors are on the CPU.

        Args:
            rank: Rank of the process that saved the part. The default is the only part, or the part of
                this process's rank if there are several.

        Raises:
            CheckpointError: The part does not exist in this pod, or is damaged.
        """
        number = (0 if self.count == 1 else self._rank) if rank is None else rank
        if not 0 <= number < self.count:
            raise CheckpointError(
                f"the snapshot of step {self.step} has {self.count} parts, but none of rank {number}: load "
                "the existing ones with state(rank), and combine them"
            )
        with reading(self._folder, self._parts[number]) as descriptor:
            if descriptor is None:
                raise CheckpointError(
                    f"the part of rank {number} no longer exists here: load a snapshot before you save "
                    "one, and if it has one part per process, load only your own"
                )
            return state_tree.decode(descriptor)


class Snapshots:
    """The snapshots of this process; not thread-safe.

    ```python
    snapshots = edl.Snapshots()
    newest = snapshots.newest()
    if newest is not None:
        model.load_state_dict(newest.state()["model"])
    ...
        snapshots.save(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    ```
    """

    def __init__(self, *, sharded: bool = False, environ: Mapping[str, str] | None = None) -> None:
        """Reads the variables of the agent and of torchrun.

        Args:
            sharded: Whether each process has a different state; otherwise the process with rank 0 saves
                the state for all processes.
            environ: The environment; `os.environ` by default.

        Raises:
            SettingError: A variable is not a number.
        """
        variables = os.environ if environ is None else environ
        folder = variables.get(FOLDER, "")
        self._folder = Path(folder) if folder else None
        if self._folder is None:
            log.info("%s is not set: snapshots are not kept (start with edl agent)", FOLDER)
        self._sharded = sharded
        self._rank = _whole(variables, "RANK", 0)
        self._world_size = _whole(variables, "WORLD_SIZE", 1)
        self._round = _whole(variables, ROUND, 0)
        name = f"{OWN}-{_whole(variables, 'LOCAL_RANK', 0)}"
        limit_bytes = _whole(variables, LIMIT, 0)
        self._slots = None if self._folder is None else Slots(self._folder, name, limit_bytes)

    def newest(self) -> Snapshot | None:
        """Returns the snapshot from which all processes start this round; None without a snapshot.

        Raises:
            CheckpointError: The agent's list of parts is damaged.
        """
        if self._folder is None:
            return None
        try:
            entries = json.loads((self._folder / RESTORE).read_bytes())
            return Snapshot(self._folder, [SnapshotPart(**entry) for entry in entries], self._rank)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{self._folder / RESTORE} is damaged: {error}") from error

    def save(self, step: int, state: Any) -> bool:
        """Copies a state into memory; the agent then copies it to another pod.

        Args:
            step: Number of the last step, the same in all processes.
            state: The state to save; `edl.data.state_tree.encode` has the supported types. The program may
                change it after the call.

        Returns:
            Whether the state was saved. It is not saved without an agent, in processes other than rank 0
            (unless sharded), or while an earlier snapshot is still being copied to another pod.

        Raises:
            CheckpointError: There is not enough memory, or the state holds an unsupported type.
        """
        if self._slots is None or not (self._sharded or self._rank == 0):
            return False
        encoded = state_tree.encode(state)
        descriptor = self._open(encoded.size)
        if descriptor is None:
            return False
        encoded.write(descriptor)
        rank, count = (self._rank, self._world_size) if self._sharded else (0, 1)
        self._slots.commit(descriptor, SnapshotPart(self._round, step, rank, count, encoded.size))
        return True

    def _open(self, size: int) -> int | None:
        """Opens a slot; if sharded, waits for a slot, since a snapshot that lacks a part is useless."""
        assert self._slots is not None  # noqa: S101 - the caller has checked it
        until_s = clock.monotonic_s() + _WAIT_S
        while True:
            descriptor = self._slots.open(size)
            is_over = not self._sharded or clock.monotonic_s() > until_s
            if descriptor is not None or is_over:
                return descriptor
            threading.Event().wait(_POLL_S)


def _whole(variables: Mapping[str, str], name: str, default: int) -> int:
    text = variables.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()):
        raise SettingError(f"{name} is {text!r:.40}: it must be a whole number; edl agent sets it")
    return int(text)
