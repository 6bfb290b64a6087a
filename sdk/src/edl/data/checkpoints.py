"""Checkpoints: saved by one trainer, atomically; `latest_checkpoint` finds the newest complete one.

Layout: `checkpoint-00000012/` holds the program's files and `manifest.json`, which lists each file
with its size and SHA-256, and the progress of each data set. A checkpoint is written under a hidden
name, made durable, and renamed: a folder of that name without a matching manifest was damaged
later.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Union

from edl import clock, json_text
from edl.errors import CheckpointError, EdlError, Refused, Unavailable, one_line
from edl.master import protocol
from edl.master.session import session

log = logging.getLogger("edl")

PathLike = Union[str, "os.PathLike[str]"]
MANIFEST = "manifest.json"
_FORMAT = 1
_NAME = re.compile(r"checkpoint-(\d{8,})")
_TEMPORARY = ".checkpoint-"
_ABANDONED_S = 600.0
"""A hidden folder of this age belongs to a process that died while it saved."""
_CHUNK_BYTES = 1 << 20
_MAX_MANIFEST_BYTES = 64 << 20


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint."""

    path: Path
    version: int
    step: int
    progress: protocol.Json
    """Data set -> the job's progress, as the master reported it."""
    job: str = ""
    """The name of the job that saved it."""

    def arrays(self) -> dict[str, Any]:
        """Returns the arrays, if the state was saved as a mapping of arrays; needs numpy.

        Raises:
            CheckpointError: The state was saved by a function of the program.
        """
        path = self.path / "arrays.npz"
        if not path.exists():
            raise CheckpointError(f"{self.path} holds no arrays: read its files as they were saved")
        return load_arrays(path)


class CheckpointSession(Protocol):
    """The part of a session that saving uses."""

    job: str

    def request_save(self, newest: int = 0) -> protocol.Ticket:
        """Asks whether to save now, as a later version than `newest`."""
        ...

    def report_saved(self, ticket: str, *, path: str, step: int, ok: bool) -> None:
        """Reports to the master whether the checkpoint was saved."""
        ...

    def progress(self) -> protocol.Json:
        """Data set -> the job's progress."""
        ...


def save_checkpoint(
    directory: PathLike,
    state: Mapping[str, Any] | Callable[[Path], object],
    *,
    step: int = 0,
    keep: int = 3,
    member: CheckpointSession | None = None,
) -> Checkpoint | None:
    """Saves a checkpoint, if the master selects this trainer; all trainers may call it.

    Args:
        directory: The folder of all checkpoints; all trainers should share it.
        state: Arrays by name (needs numpy), or a function that writes files into a folder.
        step: The step, for the manifest and the master's status.
        keep: How many checkpoints to keep; older ones are deleted.
        member: This trainer's session; the process's by default.

    Returns:
        None where another trainer saves, or where the master is away.

    Raises:
        CheckpointError: It could not be written; older ones are intact. Or another process has
            replaced this trainer meanwhile: then the checkpoint was removed.
    """
    if keep < 1:
        raise CheckpointError(f"keep is {keep}: it must be at least 1")
    trainer: CheckpointSession = session() if member is None else member
    home, checkpoint = Path(directory), None
    try:
        # the newest version is read before the ticket: a process that freezes in between gets a
        # lower version than every ticket granted meanwhile
        ticket = trainer.request_save(_newest(home))
        if not ticket.granted:
            return None
        progress = trainer.progress()
    except Unavailable as error:
        log.warning("no checkpoint now: %s", error)
        return None
    about = {"step": step, "job": trainer.job, "progress": progress}
    try:
        checkpoint = _write(home, ticket.version, state, about)
    except Exception as error:
        raise CheckpointError(f"no checkpoint in {home}: {one_line(error)}") from error
    finally:
        valid = _report(trainer, ticket.ticket, checkpoint, step)
    if not valid:
        _remove(checkpoint.path)
        raise CheckpointError(
            f"no checkpoint in {home}: another process has replaced this trainer, and its model is "
            "newer"
        )
    log.info("checkpoint %s saved at step %d", checkpoint.path, step)
    _delete_old(home, keep)
    return checkpoint


def latest_checkpoint(directory: PathLike) -> Checkpoint | None:
    """Returns the newest complete checkpoint; damaged ones are skipped and logged.

    A trainer may delete all that were there at first while a slow reader looks at them: those that
    it has saved meanwhile are looked at then.

    Returns:
        None where there is none, or no directory yet.
    """
    seen = -1
    while versions := sorted(_versions(Path(directory)), reverse=True):
        if versions[0][0] <= seen:
            break
        seen = versions[0][0]
        for _, path in versions:
            checkpoint = _read_or_skip(path)
            if checkpoint is not None:
                return checkpoint
    return None


def read_checkpoint(path: PathLike) -> Checkpoint:
    """Reads a checkpoint's manifest and checks every file.

    Raises:
        CheckpointError: A file is missing, cut short or changed; the text names it.
    """
    home = Path(path)
    try:
        about = json_text.loads(_manifest(home / MANIFEST))
        if about["format"] != _FORMAT:
            raise CheckpointError(f"{home} has format {about['format']}: this edl reads {_FORMAT}")
        for name, size, digest in ((f["name"], f["bytes"], f["sha256"]) for f in about["files"]):
            _check(home, name, size, digest)
        numbers = int(about["version"]), int(about["step"])
        return Checkpoint(home, *numbers, dict(about["progress"]), str(about.get("job", "")))
    except OSError as error:
        raise CheckpointError(f"{home} is incomplete: {one_line(error)}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # values of other types
        raise CheckpointError(f"{home}/{MANIFEST} is damaged: {one_line(error)}") from error


def load_arrays(path: Path) -> dict[str, Any]:
    """Reads all arrays of an `.npz` file into memory; needs numpy.

    Raises:
        CheckpointError: It cannot be read.
    """
    try:
        with importlib.import_module("numpy").load(path) as archive:
            return dict(archive)
    except Exception as error:  # a damaged archive raises nearly anything: zlib.error, RuntimeError
        raise CheckpointError(f"{path} cannot be read: {one_line(error)}") from error


def _read_or_skip(path: Path) -> Checkpoint | None:
    try:
        return read_checkpoint(path)
    except CheckpointError as error:
        log.warning("checkpoint skipped: %s", error)
        return None


def _manifest(path: Path) -> bytes:
    if _size(path) > _MAX_MANIFEST_BYTES:
        raise CheckpointError(f"{path} is longer than {_MAX_MANIFEST_BYTES} bytes")
    return path.read_bytes()


def _size(path: Path) -> int:
    """Size of a file in bytes; a device or a pipe could be read for ever."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise CheckpointError(f"{path} is not a file")
    return about.st_size


def _check(home: Path, name: str, size: int, digest: str) -> None:
    if not name or name.startswith("/") or ".." in name.split("/"):
        raise CheckpointError(
            f"{home}/{MANIFEST} names {name!r:.200}, which is outside of the folder"
        )
    path = home / name
    actual_size = _size(path)
    if actual_size != size:
        raise CheckpointError(f"{path} has {actual_size} bytes of {size}")
    if _digest(path) != digest:
        raise CheckpointError(f"{path} was changed: its checksum is wrong")


def _write(
    home: Path,
    version: int,
    state: Mapping[str, Any] | Callable[[Path], object],
    about: protocol.Json,
) -> Checkpoint:
    final = home / f"checkpoint-{version:08d}"
    hidden = home / f"{_TEMPORARY}{version:08d}.{secrets.token_hex(4)}"
    hidden.mkdir(parents=True)
    try:
        if callable(state):
            state(hidden)
        else:
            importlib.import_module("numpy").savez(hidden / "arrays.npz", **state)
        files = _entries(hidden)
        manifest = {"format": _FORMAT, "version": version, **about, "files": files}
        (hidden / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        for path in (*hidden.rglob("*"), hidden):
            _sync(path)
        hidden.rename(final)
        _sync(home)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    return Checkpoint(final, version, about["step"], about["progress"], about["job"])


def _entries(home: Path) -> list[protocol.Json]:
    entries = [_entry(home, path) for path in sorted(home.rglob("*")) if path.is_file()]
    if not entries:
        raise CheckpointError("nothing was written into it")
    return entries


def _entry(home: Path, path: Path) -> protocol.Json:
    name = path.relative_to(home).as_posix()
    return {"name": name, "bytes": path.stat().st_size, "sha256": _digest(path)}


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    """Makes a file or a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _report(
    trainer: CheckpointSession, ticket: str, checkpoint: Checkpoint | None, step: int
) -> bool:
    """Reports the outcome to the master; returns whether the checkpoint may stay."""
    path = "" if checkpoint is None else str(checkpoint.path)
    try:
        trainer.report_saved(ticket, path=path, step=step, ok=checkpoint is not None)
    except Refused as error:
        if checkpoint is not None:
            return _may_stay(trainer, checkpoint, error)
        log.warning("could not report that no checkpoint was saved: %s", error)
    except Exception as error:  # noqa: BLE001 - must not hide why nothing was written
        log.warning("could not report the checkpoint: %s", one_line(error))
    return True


def _may_stay(trainer: CheckpointSession, checkpoint: Checkpoint, refusal: Refused) -> bool:
    """Returns whether a checkpoint whose ticket is over may stay.

    The process was frozen for long, or another has replaced it. Where the master does not answer,
    the checkpoint stays: its version is lower than those of all later tickets.
    """
    try:
        ticket = trainer.request_save(checkpoint.version)
        if ticket.granted:  # the master shows the last report: never an older one than the newest
            newest = _newest(checkpoint.path.parent) <= checkpoint.version
            path, step = (str(checkpoint.path), checkpoint.step) if newest else ("", 0)
            trainer.report_saved(ticket.ticket, path=path, step=step, ok=newest)
    except Refused:
        return False
    except EdlError as error:
        log.warning("could not report the checkpoint: %s", error)
    else:
        log.info("checkpoint %s took long: %s", checkpoint.path, refusal)
    return True


def _remove(path: Path) -> None:
    """Removes a checkpoint, at once for all readers."""
    hidden = path.with_name(f"{_TEMPORARY}{secrets.token_hex(4)}")
    try:
        path.rename(hidden)
    except OSError as error:  # another process has deleted it
        log.info("%s does not exist any more: %s", path, one_line(error))
    shutil.rmtree(hidden, ignore_errors=True)


def _newest(home: Path) -> int:
    """Version of the newest checkpoint, complete or not; 0 where there is none."""
    try:
        return max((number for number, _ in _versions(home)), default=0)
    except OSError as error:
        raise CheckpointError(f"no checkpoint in {home}: {one_line(error)}") from error


def _versions(home: Path) -> list[tuple[int, Path]]:
    if not home.is_dir():
        return []
    matches = ((_NAME.fullmatch(path.name), path) for path in home.iterdir())
    return [(int(match[1]), path) for match, path in matches if match]


def _delete_old(home: Path, keep: int) -> None:
    """Deletes old checkpoints, and folders of processes that died while they saved."""
    old = [path for _, path in sorted(_versions(home))[:-keep]]
    old += [path for path in home.glob(f"{_TEMPORARY}*") if _abandoned(path)]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)


def _abandoned(path: Path) -> bool:
    try:
        return clock.epoch_s() - path.stat().st_mtime > _ABANDONED_S
    except OSError:  # the process that saves has just renamed it
        return False
