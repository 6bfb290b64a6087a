"""Checkpoints: one trainer saves them atomically; `latest_checkpoint` finds the newest complete one.

Layout: `checkpoint-00000012/` holds the program's files and `manifest.json`, which lists each file
with its size and SHA-256, and the progress of each data set. A checkpoint is written to a hidden
folder, synced to disk, and renamed. So a `checkpoint-` folder without a matching manifest was damaged
after it had been saved.
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
"""A hidden folder older than this was left by a process that died while saving."""
_CHUNK_BYTES = 1 << 20
_MAX_MANIFEST_BYTES = 64 << 20


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint."""

    path: Path
    version: int
    step: int
    progress: protocol.Json
    """Data set -> the job's progress, as reported by the master."""
    job: str = ""
    """Name of the job that saved the checkpoint."""

    def arrays(self) -> dict[str, Any]:
        """Returns the arrays of a state that was saved as a mapping of arrays; needs numpy.

        Raises:
            CheckpointError: The state was not saved as arrays, but written by a function of the program.
        """
        path = self.path / "arrays.npz"
        if not path.exists():
            raise CheckpointError(
                f"{self.path} holds no arrays: read the files that your program saved there"
            )
        return load_arrays(path)


class CheckpointSession(Protocol):
    """The session's methods that `save_checkpoint` needs."""

    job: str

    def request_save(self, newest: int = 0) -> protocol.Ticket:
        """Asks whether this trainer should save now; a granted ticket has a version above `newest`."""
        ...

    def report_saved(self, ticket: str, *, path: str, step: int, ok: bool) -> None:
        """Reports to the master whether the checkpoint was saved."""
        ...

    def progress(self) -> protocol.Json:
        """Returns the job's progress by data set."""
        ...


def save_checkpoint(
    directory: PathLike,
    state: Mapping[str, Any] | Callable[[Path], object],
    *,
    step: int = 0,
    keep: int = 3,
    member: CheckpointSession | None = None,
) -> Checkpoint | None:
    """Saves a checkpoint if the master selects this trainer; all trainers may call it.

    Args:
        directory: The folder for all checkpoints, which all trainers should share.
        state: Name -> array (needs numpy), or a function that writes files into a given folder.
        step: The current step, for the manifest and the master's status.
        keep: How many checkpoints to keep; older ones are deleted.
        member: This trainer's session; the process's session by default.

    Returns:
        The checkpoint, or None if the master did not select this trainer or does not answer.

    Raises:
        CheckpointError: The checkpoint could not be written; older checkpoints are intact. Or another
            process has replaced this trainer in the meantime, and the new checkpoint was removed.
    """
    if keep < 1:
        raise CheckpointError(f"keep is {keep}: it must be at least 1")
    trainer: CheckpointSession = session() if member is None else member
    home, checkpoint = Path(directory), None
    try:
        # read the newest version before asking for a ticket: if this process freezes in between, its
        # version is lower than that of any ticket granted in the meantime
        ticket = trainer.request_save(_newest(home))
        if not ticket.granted:
            return None
        progress = trainer.progress()
    except Unavailable as error:
        log.warning("no checkpoint saved: %s", error)
        return None
    try:
        checkpoint = _write(
            home, ticket.version, state, step=step, job=trainer.job, progress=progress
        )
    except Exception as error:
        raise CheckpointError(
            f"could not save a checkpoint in {home}: {one_line(error)}"
        ) from error
    finally:
        valid = _report(trainer, ticket.ticket, checkpoint, step)
    if not valid:
        _remove(checkpoint.path)
        raise CheckpointError(
            f"removed the checkpoint saved in {home}: another process has replaced this trainer, and "
            "its model is newer"
        )
    log.info("checkpoint %s saved at step %d", checkpoint.path, step)
    _delete_old(home, keep)
    return checkpoint


def latest_checkpoint(directory: PathLike) -> Checkpoint | None:
    """Returns the newest complete checkpoint; logs and skips damaged ones.

    Returns:
        The checkpoint; None if there is no complete checkpoint or the directory does not exist.
    """
    # while this process reads the listed checkpoints, a trainer may delete them and save newer ones, so
    # the folder is listed again until no newer checkpoint appears
    seen = -1
    while versions := sorted(_versions(Path(directory)), reverse=True):
        if versions[0][0] <= seen:
            break
        seen = versions[0][0]
        for _, path in versions:
            try:
                return read_checkpoint(path)
            except CheckpointError as error:  # noqa: PERF203 - reading takes far longer than try
                log.warning("checkpoint skipped: %s", error)
    return None


def read_checkpoint(path: PathLike) -> Checkpoint:
    """Reads a checkpoint's manifest and verifies every file.

    Raises:
        CheckpointError: A file is missing, truncated or changed; the message names it.
    """
    home = Path(path)
    try:
        manifest = json_text.loads(_read_manifest(home / MANIFEST))
        if manifest["format"] != _FORMAT:
            raise CheckpointError(
                f"{home} has format {manifest['format']}: this version of edl reads {_FORMAT}"
            )
        for file in manifest["files"]:
            _verify(home, file["name"], file["bytes"], file["sha256"])
        return Checkpoint(
            path=home,
            version=int(manifest["version"]),
            step=int(manifest["step"]),
            progress=dict(manifest["progress"]),
            job=str(manifest.get("job", "")),
        )
    except OSError as error:
        raise CheckpointError(f"{home} is incomplete: {one_line(error)}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # a field has another type
        raise CheckpointError(f"{home}/{MANIFEST} is damaged: {one_line(error)}") from error


def load_arrays(path: Path) -> dict[str, Any]:
    """Reads all arrays of an `.npz` file into memory; needs numpy.

    Raises:
        CheckpointError: The file cannot be read.
    """
    try:
        with importlib.import_module("numpy").load(path) as archive:
            return dict(archive)
    except Exception as error:  # damaged archives raise many types: zlib.error, RuntimeError, ...
        raise CheckpointError(f"cannot read {path}: {one_line(error)}") from error


def _read_manifest(path: Path) -> bytes:
    if _size(path) > _MAX_MANIFEST_BYTES:
        raise CheckpointError(f"{path} is longer than {_MAX_MANIFEST_BYTES} bytes")
    return path.read_bytes()


def _size(path: Path) -> int:
    """Returns the size of a file in bytes; refuses devices and pipes, which may never end."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"{path} is not a regular file")
    return status.st_size


def _verify(home: Path, name: str, size: int, digest: str) -> None:
    if not name or name.startswith("/") or ".." in name.split("/"):
        raise CheckpointError(f"{home}/{MANIFEST} names {name!r:.200}, which is outside the folder")
    path = home / name
    actual_size = _size(path)
    if actual_size != size:
        raise CheckpointError(f"{path} has {actual_size} bytes instead of {size}")
    if _digest(path) != digest:
        raise CheckpointError(f"{path} was changed: its checksum does not match")


def _write(
    home: Path,
    version: int,
    state: Mapping[str, Any] | Callable[[Path], object],
    *,
    step: int,
    job: str,
    progress: protocol.Json,
) -> Checkpoint:
    final = home / f"checkpoint-{version:08d}"
    hidden = home / f"{_TEMPORARY}{version:08d}.{secrets.token_hex(4)}"
    hidden.mkdir(parents=True)
    try:
        if callable(state):
            state(hidden)
        else:
            importlib.import_module("numpy").savez(hidden / "arrays.npz", **state)
        manifest = {
            "format": _FORMAT,
            "version": version,
            "step": step,
            "job": job,
            "progress": progress,
            "files": _file_entries(hidden),
        }
        (hidden / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        for path in (*hidden.rglob("*"), hidden):
            _sync(path)
        hidden.rename(final)
        _sync(home)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    return Checkpoint(final, version, step, progress, job)


def _file_entries(home: Path) -> list[protocol.Json]:
    """Returns the manifest's entries for all files in a folder."""
    entries: list[protocol.Json] = [
        {
            "name": path.relative_to(home).as_posix(),
            "bytes": path.stat().st_size,
            "sha256": _digest(path),
        }
        for path in sorted(home.rglob("*"))
        if path.is_file()
    ]
    if not entries:
        raise CheckpointError("the program wrote no files into it")
    return entries


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    """Syncs a file, or the list of files in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _report(
    trainer: CheckpointSession, ticket: str, checkpoint: Checkpoint | None, step: int
) -> bool:
    """Reports the outcome to the master; returns whether the checkpoint may be kept."""
    path = "" if checkpoint is None else str(checkpoint.path)
    try:
        trainer.report_saved(ticket, path=path, step=step, ok=checkpoint is not None)
    except Refused as error:
        if checkpoint is not None:
            return _may_stay(trainer, checkpoint, error)
        log.warning("could not report the failure to save a checkpoint: %s", error)
    except Exception as error:  # noqa: BLE001 - must not hide an error from saving
        log.warning("could not report the checkpoint: %s", one_line(error))
    return True


def _may_stay(trainer: CheckpointSession, checkpoint: Checkpoint, refusal: Refused) -> bool:
    """Returns whether a checkpoint whose ticket has expired may be kept.

    Either this process was frozen for a long time, or another process has replaced it. If the master does
    not answer, the checkpoint is kept, because every later ticket has a higher version.
    """
    try:
        ticket = trainer.request_save(checkpoint.version)
        if ticket.granted:  # the master shows the last report, so report only the newest checkpoint
            newest = _newest(checkpoint.path.parent) <= checkpoint.version
            path, step = (str(checkpoint.path), checkpoint.step) if newest else ("", 0)
            trainer.report_saved(ticket.ticket, path=path, step=step, ok=newest)
    except Refused:
        return False
    except EdlError as error:
        log.warning("could not report the checkpoint: %s", error)
    else:
        log.info("checkpoint %s was saved late: %s", checkpoint.path, refusal)
    return True


def _remove(path: Path) -> None:
    """Removes a checkpoint; it vanishes for readers at once, before its files are deleted."""
    hidden = path.with_name(f"{_TEMPORARY}{secrets.token_hex(4)}")
    try:
        path.rename(hidden)
    except OSError as error:  # another process has deleted it
        log.info("%s no longer exists: %s", path, one_line(error))
    shutil.rmtree(hidden, ignore_errors=True)


def _newest(home: Path) -> int:
    """Returns the version of the newest checkpoint, complete or not; 0 if there is no checkpoint."""
    try:
        return max((number for number, _ in _versions(home)), default=0)
    except OSError as error:
        raise CheckpointError(
            f"could not save a checkpoint in {home}: {one_line(error)}"
        ) from error


def _versions(home: Path) -> list[tuple[int, Path]]:
    """Returns the version and the path of each checkpoint in a folder."""
    if not home.is_dir():
        return []
    matches = ((_NAME.fullmatch(path.name), path) for path in home.iterdir())
    return [(int(match[1]), path) for match, path in matches if match]


def _delete_old(home: Path, keep: int) -> None:
    """Deletes old checkpoints, and folders left by processes that died while saving."""
    old = [path for _, path in sorted(_versions(home))[:-keep]]
    old += [path for path in home.glob(f"{_TEMPORARY}*") if _abandoned(path)]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)


def _abandoned(path: Path) -> bool:
    try:
        return clock.epoch_s() - path.stat().st_mtime > _ABANDONED_S
    except OSError:  # the saving process has just renamed it
        return False
