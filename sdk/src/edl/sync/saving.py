"""Checkpoints of a group: written by the member of rank 0 while training goes on, read by the first.

A checkpoint holds what newcomers get from other members, for the case that there are none.
"""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np

from edl import wire
from edl.checkpoints import Checkpoint, latest_checkpoint, save_checkpoint
from edl.errors import CheckpointError, EdlError, one_line
from edl.sync.leader import Saving
from edl.sync.replica import State

log = logging.getLogger("edl")

_ARRAYS, _ABOUT = "arrays.npz", "training.json"


class Saver:
    """Writes one checkpoint at a time, in a thread; one that comes too early is left out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread: threading.Thread | None = None

    def save(self, state: State, about: wire.Json, lead: Saving, *, wait: bool = False) -> None:
        """Copies the state and writes it.

        Args:
            state: Of the replica; may change after the call.
            about: How far the group is.
            lead: Of whoever leads it; closed here.
            wait: Whether to return when it is written, after any that is under way.
        """
        if wait:
            self.close()
        elif self._thread is not None and self._thread.is_alive():
            log.info("step %s: no checkpoint, one is still being written", about["step"])
            lead.close()
            return
        kept = State({name: np.array(one) for name, one in state.arrays.items()}, state.extra)
        self._thread = threading.Thread(
            target=self._write, args=(kept, about, lead), name="edl-checkpoint", daemon=True
        )
        self._thread.start()
        if wait:
            self.close()

    def close(self) -> None:
        """Waits for what is being written."""
        if self._thread is not None:
            self._thread.join()

    def _write(self, state: State, about: wire.Json, lead: Saving) -> None:
        def into(folder: Path) -> None:
            arrays: dict[str, Any] = (
                state.arrays
            )  # without `allow_pickle`: numpy before 2.1 saved it
            np.savez(folder / _ARRAYS, **arrays)
            text = json.dumps({**about, "extra": state.extra})
            (folder / _ABOUT).write_text(text, encoding="utf-8")

        try:
            save_checkpoint(self._folder, into, step=about["step"], member=lead)
        except EdlError as error:
            log.warning("no checkpoint at step %s: %s", about["step"], error)
        finally:
            lead.close()


def newest(folder: Path, after: int = -1) -> tuple[State, wire.Json] | None:
    """The newest whole checkpoint of a folder: the state, and how far the group was.

    Args:
        folder: Of checkpoints.
        after: Only one of a later step.

    Raises:
        CheckpointError: It is none of a synchronous job.
    """
    found = latest_checkpoint(folder)
    return None if found is None or found.step <= after else _read(found)


def _read(found: Checkpoint) -> tuple[State, wire.Json]:
    try:
        about = json.loads((found.path / _ABOUT).read_bytes())
        return State(found.arrays(), about.pop("extra")), about
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{found.path} is no checkpoint of a synchronous job ({one_line(error)}): name another "
            "folder, or remove it"
        ) from error
