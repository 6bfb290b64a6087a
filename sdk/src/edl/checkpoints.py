"""Checkpoints: one trainer writes them, whole or not at all; the newest whole one is found again.

Layout: `checkpoint-00000012/` holds what the program wrote and `manifest.json`, which names each
file with its size and SHA-256, and how far each data set was. A checkpoint is written under a
hidden name, made durable, and renamed: a folder of that name without a fitting manifest was
damaged later.
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Union

from edl import clock, wire
from edl.errors import CheckpointError, EdlError, Refused, Unavailable, one_line
from edl.process import session

log = logging.getLogger("edl")

PathLike = Union[str, "os.PathLike[str]"]
MANIFEST = "manifest.json"
_FORMAT = 1
_NAME = re.compile(r"checkpoint-(\d{8,})")
_TEMPORARY = ".checkpoint-"
_ABANDONED_S = 600.0
"""A hidden folder of this age belongs to a saver that died."""
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Checkpoint:
    """One that is whole."""

    path: Path
    version: int
    step: int
    progress: wire.Json
    """Data set -> how far the job was, as the master said."""

    def arrays(self) -> dict[str, Any]:
        """What was saved as a mapping of arrays; needs numpy.

        Raises:
            CheckpointError: It was saved by a function of the program.
        """
        path = self.path / "arrays.npz"
        if not path.exists():
            raise CheckpointError(f"{self.path} holds no arrays: read its files as they were saved")
        with importlib.import_module("numpy").load(path) as found:
            return dict(found)


class Member(Protocol):
    """What saving needs of a session."""

    job: str

    def ask_to_save(self, newest: int = 0) -> wire.Ticket:
        """Whether to save now, as a later version than this one."""
        ...

    def saved(self, ticket: str, *, path: str, step: int, ok: bool) -> None:
        """Tells the master what became of it."""
        ...

    def progress(self) -> wire.Json:
        """Data set -> how far the job is with it."""
        ...


def save_checkpoint(
    directory: PathLike,
    state: Mapping[str, Any] | Callable[[Path], object],
    *,
    step: int = 0,
    keep: int = 3,
    member: Member | None = None,
) -> Checkpoint | None:
    """Saves a checkpoint, if this trainer is the one to do so; all may call it.

    Args:
        directory: Where checkpoints are; all trainers should see the same.
        state: Arrays by name (needs numpy), or a function that writes files into a folder.
        step: For the manifest and the master's status.
        keep: How many to keep; older ones are deleted.
        member: This trainer's session; the process's by default.

    Returns:
        None where another trainer saves, or where the master is away.

    Raises:
        CheckpointError: It could not be written; older ones are whole. Or another trainer has
            this one's place by now: then nothing is left of it.
    """
    if keep < 1:
        raise CheckpointError(f"keep is {keep}: it must be at least 1")
    found: Member = session() if member is None else member
    home, made = Path(directory), None
    try:
        # looked at before the ticket: whoever stands still after that has an older version than
        # all who were given a ticket meanwhile
        ticket = found.ask_to_save(_newest(home))
        if not ticket.granted:
            return None
        progress = found.progress()
    except Unavailable as error:
        log.warning("no checkpoint now: %s", error)
        return None
    about = {"step": step, "job": found.job, "progress": progress}
    try:
        made = _write(home, ticket.version, state, about)
    except Exception as error:
        raise CheckpointError(f"no checkpoint in {home}: {one_line(error)}") from error
    finally:
        stays = _tell(found, ticket.ticket, made, step)
    if not stays:
        _remove(made.path)
        raise CheckpointError(
            f"no checkpoint in {home}: another process has this trainer's place by now, and its "
            "model is newer"
        )
    log.info("checkpoint %s saved at step %d", made.path, step)
    _tidy(home, keep)
    return made


def latest_checkpoint(directory: PathLike) -> Checkpoint | None:
    """The newest whole checkpoint; damaged ones are skipped, with a line in the log each.

    Returns:
        None where there is none, or no directory yet.
    """
    for _, path in sorted(_versions(Path(directory)), reverse=True):
        found = _whole(path)
        if found is not None:
            return found
    return None


def read_checkpoint(path: PathLike) -> Checkpoint:
    """One checkpoint, every file of it checked.

    Raises:
        CheckpointError: Something is missing, cut short or changed; the text names it.
    """
    home = Path(path)
    try:
        about = json.loads((home / MANIFEST).read_bytes())
        if about["format"] != _FORMAT:
            raise CheckpointError(f"{home} has format {about['format']}: this edl reads {_FORMAT}")
        for name, size, digest in ((f["name"], f["bytes"], f["sha256"]) for f in about["files"]):
            _check(home, name, size, digest)
        return Checkpoint(home, int(about["version"]), int(about["step"]), dict(about["progress"]))
    except OSError as error:
        raise CheckpointError(f"{home} is incomplete: {one_line(error)}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{home}/{MANIFEST} is damaged: {one_line(error)}") from error


def _whole(path: Path) -> Checkpoint | None:
    try:
        return read_checkpoint(path)
    except CheckpointError as error:
        log.warning("checkpoint skipped: %s", error)
        return None


def _check(home: Path, name: str, size: int, digest: str) -> None:
    path = home / name
    found = path.stat().st_size
    if found != size:
        raise CheckpointError(f"{path} has {found} bytes of {size}")
    if _digest(path) != digest:
        raise CheckpointError(f"{path} was changed: its checksum is wrong")


def _write(
    home: Path, version: int, state: Mapping[str, Any] | Callable[[Path], object], about: wire.Json
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
    return Checkpoint(final, version, about["step"], about["progress"])


def _entries(home: Path) -> list[wire.Json]:
    found = [_entry(home, path) for path in sorted(home.rglob("*")) if path.is_file()]
    if not found:
        raise CheckpointError("nothing was written into it")
    return found


def _entry(home: Path, path: Path) -> wire.Json:
    name = path.relative_to(home).as_posix()
    return {"name": name, "bytes": path.stat().st_size, "sha256": _digest(path)}


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()


def _sync(path: Path) -> None:
    """A file or a folder, down to the disk."""
    place = os.open(path, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


def _tell(member: Member, ticket: str, made: Checkpoint | None, step: int) -> bool:
    """The checkpoint is whole, whether or not the master hears of it; whether it may stay."""
    path = "" if made is None else str(made.path)
    try:
        member.saved(ticket, path=path, step=step, ok=made is not None)
    except Refused as error:
        if made is not None:
            return _may_stay(member, made, error)
        log.warning("the master did not hear that there is no checkpoint: %s", error)
    except Exception as error:  # noqa: BLE001 - must not hide why nothing was written
        log.warning("the master did not hear of the checkpoint: %s", one_line(error))
    return True


def _may_stay(member: Member, made: Checkpoint, why: Refused) -> bool:
    """The ticket is over: this process stood still for long, or another has its place.

    Where nobody knows, it stays: its version is older than those of all later tickets.
    """
    try:
        again = member.ask_to_save(made.version)
        if again.granted:  # the master shows what was saved last: never an older one than there is
            newest = _newest(made.path.parent) <= made.version
            path, step = (str(made.path), made.step) if newest else ("", 0)
            member.saved(again.ticket, path=path, step=step, ok=newest)
    except Refused:
        return False
    except EdlError as error:
        log.warning("the master did not hear of the checkpoint: %s", error)
    else:
        log.info("checkpoint %s took long: %s", made.path, why)
    return True


def _remove(path: Path) -> None:
    """At once for all readers."""
    hidden = path.with_name(f"{_TEMPORARY}{secrets.token_hex(4)}")
    try:
        path.rename(hidden)
    except OSError as error:  # somebody has tidied up
        log.info("%s is not there any more: %s", path, one_line(error))
    shutil.rmtree(hidden, ignore_errors=True)


def _newest(home: Path) -> int:
    """Version of the newest, whole or not; 0 where there is none."""
    try:
        return max((number for number, _ in _versions(home)), default=0)
    except OSError as error:
        raise CheckpointError(f"no checkpoint in {home}: {one_line(error)}") from error


def _versions(home: Path) -> list[tuple[int, Path]]:
    if not home.is_dir():
        return []
    named = ((_NAME.fullmatch(path.name), path) for path in home.iterdir())
    return [(int(match[1]), path) for match, path in named if match]


def _tidy(home: Path, keep: int) -> None:
    """Deletes old checkpoints, and what savers that died have left."""
    old = [path for _, path in sorted(_versions(home))[:-keep]]
    old += [path for path in home.glob(f"{_TEMPORARY}*") if _abandoned(path)]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)


def _abandoned(path: Path) -> bool:
    try:
        return clock.epoch_s() - path.stat().st_mtime > _ABANDONED_S
    except OSError:  # its saver has just finished
        return False
