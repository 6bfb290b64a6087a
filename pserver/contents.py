"""A shard as bytes in a file, and a shard made of such files, of as many servers as there were.

Files of the same number of servers are taken over one to one. With another number each server reads
all of them and takes what is its own: numbers by name and place, rows by id.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from pserver import frames
from pserver.errors import ShardError
from pserver.frames import Array, Frame, Json
from pserver.memory import Floats, Memory, Views
from pserver.model import Model, Piece
from pserver.shard import MOST_PROCESSES, Counts, Shard

FORMAT = 1
_ROWS_AT_ONCE = 1 << 16


def taken(shard: Shard, about: Json) -> tuple[Json, dict[str, frames.Body]]:
    """What is to be written; the view that keeps it so must be open.

    Args:
        shard: All of it.
        about: Job, index, of, generation and version.
    """
    meta = {
        "format": FORMAT,
        **about,
        "model": shard.model.model_dump(),
        "pieces": [piece.model_dump() for piece in shard.pieces],
        "counts": list(shard.counts),
        "updates": shard.vector.count,
        "applied": list(shard.applied.items()),
        "tables": list(shard.tables),
    }
    arrays: dict[str, frames.Body] = {"dense": shard.vector.values, "slots": shard.vector.slots}
    for place, table in enumerate(shard.tables.values()):
        saved = table.saved()
        size = len(saved.ids)
        arrays[f"ids.{place}"] = saved.ids
        arrays[f"values.{place}"] = _cut(saved.values, size, table.shape.dim)
        if saved.slots:
            arrays[f"slots.{place}"] = _cut(saved.slots, size, saved.slots[0].shape[1])
    return meta, arrays


def model_of(frame: Frame) -> Model:
    """The model that a file is of.

    Raises:
        ShardError: The file is of another format.
    """
    try:
        if frame.meta["format"] != FORMAT:
            raise ShardError(f"it has format {frame.meta['format']}, this server reads {FORMAT}")
        return Model.model_validate(frame.meta["model"])
    except (KeyError, TypeError, ValidationError) as error:
        raise ShardError("it holds no model") from error


def counts_of(frame: Frame) -> Counts:
    """How far the file's shard was."""
    version, records = frame.meta["counts"]
    return Counts(int(version), int(records))


def assemble(
    model: Model,
    pieces: list[Piece],
    place: tuple[int, int],
    files: Sequence[Frame],
    memory: Memory,
) -> Shard:
    """One server's shard of files that together hold all that is its own.

    Args:
        model: As the trainers say it; it fits the files.
        pieces: What this server is to hold.
        place: Its index, and how many servers there are.
        files: One, or all of a checkpoint of another number of servers.
        memory: Counts what is used.

    Raises:
        ShardError: Something is missing, or the files are not what they say.
        FullError: There is no room.
    """
    try:
        return _assembled(model, pieces, place, files, memory)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise ShardError(f"its contents do not fit together: {error!r:.200}") from error


def _assembled(
    model: Model,
    pieces: list[Piece],
    place: tuple[int, int],
    files: Sequence[Frame],
    memory: Memory,
) -> Shard:
    dense, slots = _gathered(pieces, files)
    shard = Shard(model, pieces, dense, memory, Views(memory))
    shard.vector.restore(slots, max(int(one.meta["updates"]) for one in files))
    for ids, values, kept, name in _rows(place, files):
        shard.table(name).restore(ids, values, kept)
    shard.counts = max(counts_of(one) for one in files)
    newest: dict[str, int] = {}
    for process, number in (entry for one in files for entry in one.meta["applied"]):
        newest[process] = max(int(number), newest.get(process, 0))
    shard.applied.update(list(newest.items())[-MOST_PROCESSES:])
    return shard


def _cut(pages: Sequence[Floats], size: int, width: int) -> list[Array]:
    """Pages without what lies behind the last row."""
    found: list[Array] = []
    for page in pages:
        if size <= 0:
            break
        found.append(page[:size])
        size -= len(page)
    return found or [np.empty((0, width), np.float32)]


def _gathered(pieces: list[Piece], files: Sequence[Frame]) -> tuple[Floats, Floats]:
    """Dense numbers and their slots, from wherever they lie."""
    size = sum(piece.size for piece in pieces)
    slots_wide = len(files[0].arrays["slots"])
    dense, slots = np.empty(size, np.float32), np.empty((slots_wide, size), np.float32)
    missing = np.ones(size, bool)
    for file in files:
        for ours, theirs in _overlaps(pieces, [Piece(**one) for one in file.meta["pieces"]]):
            dense[ours] = file.arrays["dense"][theirs]
            slots[:, ours] = file.arrays["slots"][:, theirs]
            missing[ours] = False
    if missing.any():
        raise ShardError(f"{int(missing.sum())} numbers of dense parameters are missing in it")
    return dense, slots


def _overlaps(ours: list[Piece], theirs: list[Piece]) -> Iterator[tuple[slice, slice]]:
    """Places in our vector and in theirs that hold the same numbers."""
    known: dict[str, list[tuple[Piece, int]]] = {}
    at = 0
    for piece in theirs:
        known.setdefault(piece.name, []).append((piece, at))
        at += piece.size
    at = 0
    for piece in ours:
        for other, there in known.get(piece.name, ()):
            start, stop = max(piece.start, other.start), min(piece.stop, other.stop)
            if start < stop:
                here, size = at + start - piece.start, stop - start
                other_place = there + start - other.start
                yield slice(here, here + size), slice(other_place, other_place + size)
        at += piece.size


def _rows(
    place: tuple[int, int], files: Sequence[Frame]
) -> Iterator[tuple[NDArray[np.int64], Floats, Floats, str]]:
    """Rows of this server, some at a time."""
    index, of = place
    for file in files:
        for number, name in enumerate(file.meta["tables"]):
            ids, values = file.arrays[f"ids.{number}"], file.arrays[f"values.{number}"]
            slots = file.arrays.get(f"slots.{number}", np.empty((len(ids), 0), np.float32))
            _same_length(name, ids, values, slots)
            for at in range(0, len(ids), _ROWS_AT_ONCE):
                part = slice(at, at + _ROWS_AT_ONCE)
                mine = np.flatnonzero(ids[part] % of == index)
                yield ids[part][mine], values[part][mine], slots[part][mine], name


def _same_length(name: str, *arrays: Any) -> None:
    lengths = {len(array) for array in arrays}
    if len(lengths) > 1:
        raise ShardError(f"table {name!r} has ids, rows and slots of different numbers {lengths}")
