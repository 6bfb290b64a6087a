"""Snapshots of a program's state in memory, which its agent keeps when the processes restart.

They need no change of the loop but two lines, and cost a copy: docs/pytorch.md. Without an agent
nothing is kept.
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
"""Variables that the agent sets for its processes."""
RESTORE = "restore"
"""Name of the file that says which parts the processes of a round start from."""
_WAIT_S, _POLL_S = 30.0, 0.01
"""How long a process waits for the copy of its part before the last one, and how often it looks."""


class Snapshot:
    """The newest snapshot of which all parts are left."""

    def __init__(self, folder: Path, parts: Sequence[SnapshotPart], rank: int) -> None:
        self.step = parts[0].step
        """At which it was saved."""
        self.count = len(parts)
        """Number of its parts: 1, or the number of processes that saved it."""
        self._folder, self._parts, self._rank = folder, parts, rank

    def state(self, rank: int | None = None) -> Any:
        """Reads a part; tensors are on the host.

        Args:
            rank: Of the process that saved it; that of this process by default, or the only one.

        Raises:
            CheckpointError: There is no such part here, or it is damaged.
        """
        number = (0 if self.count == 1 else self._rank) if rank is None else rank
        if not 0 <= number < self.count:
            raise CheckpointError(
                f"the snapshot of step {self.step} has {self.count} parts, none of rank {number}: name one as "
                "state(rank), and put them together"
            )
        with reading(self._folder, self._parts[number]) as descriptor:
            if descriptor is None:
                raise CheckpointError(
                    f"the part of rank {number} is not here any more: load a snapshot before you save one, "
                    "and of as many parts as processes only your own"
                )
            return state_tree.decode(descriptor)


class Snapshots:
    """The snapshots of this process; for one thread.

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
            sharded: Whether each process has a state of its own; otherwise only the process of rank 0
                saves its state, which is that of all.
            environ: The environment; that of the process by default.

        Raises:
            SettingError: A variable is not a number.
        """
        variables = os.environ if environ is None else environ
        folder = variables.get(FOLDER, "")
        self._folder = Path(folder) if folder else None
        if self._folder is None:
            log.info("%s is not set: no snapshots are kept (start with edl agent)", FOLDER)
        self._sharded = sharded
        self._rank, self._world_size = (
            _whole(variables, "RANK", 0),
            _whole(variables, "WORLD_SIZE", 1),
        )
        self._round = _whole(variables, ROUND, 0)
        name = f"{OWN}-{_whole(variables, 'LOCAL_RANK', 0)}"
        limit_bytes = _whole(variables, LIMIT, 0)
        self._slots = None if self._folder is None else Slots(self._folder, name, limit_bytes)

    def newest(self) -> Snapshot | None:
        """Returns the snapshot from which all processes of this round start; None if there is none.

        Raises:
            CheckpointError: It is damaged.
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
        """Copies a state into memory; the agent copies it on to another pod.

        Args:
            step: The number of the step after which it is taken, the same in all processes.
            state: See `edl.data.state_tree.encode`; may change after the call.

        Returns:
            Whether it is kept: not without agent, by other processes than that of rank 0 (unless
            sharded), and where the one before the last is still being copied.

        Raises:
            CheckpointError: There is no room, or the state holds what no snapshot can hold.
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
        """Opens a slot; waits for one where the parts of the others would be worth nothing alone."""
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
        raise SettingError(f"{name} is {text!r:.40}: it is a whole number, which edl agent sets")
    return int(text)
