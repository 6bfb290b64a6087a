"""Encodes a shard for a file, and assembles a shard from the files of any number of servers.

With the same number of servers, each server reads its own file. With another number, each server reads
all files and takes its part: dense elements by name and position, rows by id.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from edl_protocol.fields import Json
from edl_protocol.frames import Array, Body, Frame
from edl_protocol.pserver import Model, Piece
from numpy.typing import NDArray

from pserver.errors import ShardError
from pserver.memory import Floats, Memory, Views
from pserver.shard import MAX_PROCESSES, Shard, ShardCounts
from runtime.call_checks import RefusedError, check_fields

FORMAT = 1
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class ShardPlace:
    """The index of a server among the servers of the job, which determines its rows."""

    index: int
    of: int


def snapshot(shard: Shard, header: Json) -> tuple[Json, dict[str, Body]]:
    """Returns the header and arrays of a file. A view must stay open until they are written.

    Args:
        shard: The shard.
        header: Job, index, of, generation and version of the file.
    """
    meta = {
        "format": FORMAT,
        **header,
        "model": asdict(shard.model),
        "pieces": [asdict(piece) for piece in shard.pieces],
        "counts": list(shard.counts),
        "updates": shard.vector.count,
        "applied": list(shard.applied.items()),
        "tables": list(shard.tables),
        "row_counts": [asdict(table.counts) for table in shard.tables.values()],
        "data": shard.data.dump(),
    }
    arrays: dict[str, Body] = {"dense": shard.vector.values, "slots": shard.vector.slots}
    for place, table in enumerate(shard.tables.values()):
        snapshot_ = table.snapshot()
        size = snapshot_.size
        arrays[f"ids.{place}"] = [page[:, 0] for page in _trimmed(snapshot_.ids, size, 1, np.int64)]
        arrays[f"values.{place}"] = _trimmed(snapshot_.values, size, table.shape.dim)
        if snapshot_.slots:
            arrays[f"slots.{place}"] = _trimmed(snapshot_.slots, size, snapshot_.slots[0].shape[1])
        if snapshot_.marks:
            arrays[f"marks.{place}"] = _trimmed(snapshot_.marks, size, 2, np.int64)
        if snapshot_.candidates is not None:
            arrays[f"candidates.{place}"] = snapshot_.candidates
    return meta, arrays


def model_of(frame: Frame) -> Model:
    """Returns the model in a file.

    Raises:
        ShardError: The file has another format.
    """
    try:
        if frame.meta["format"] != FORMAT:
            raise ShardError(f"it has format {frame.meta['format']}, this server reads {FORMAT}")
        return check_fields(Model, frame.meta["model"])
    except (KeyError, TypeError, RefusedError) as error:
        raise ShardError("it contains no model") from error


def counts_of(frame: Frame) -> ShardCounts:
    """Returns the progress of the file's shard."""
    version, records = frame.meta["counts"]
    return ShardCounts(int(version), int(records))


def assemble(
    model: Model,
    pieces: list[Piece],
    place: ShardPlace,
    files: Sequence[Frame],
    memory: Memory,
) -> Shard:
    """Assembles one server's shard from files that together contain all of it.

    Args:
        model: The trainers' model, which fits the files.
        pieces: The pieces that this server holds.
        place: The place of this server.
        files: One file, or all files of a checkpoint that another number of servers wrote.
        memory: Accounts for the shard's memory.

    Raises:
        ShardError: The files are incomplete or invalid.
        FullError: The memory limit would be exceeded.
    """
    try:
        return _assembled(model, pieces, place, files, memory)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise ShardError(f"its contents do not fit together: {error!r:.200}") from error


def _assembled(
    model: Model,
    pieces: list[Piece],
    place: ShardPlace,
    files: Sequence[Frame],
    memory: Memory,
) -> Shard:
    # dense elements: only the pieces of this server, from all files
    dense, slots = _gathered(pieces, files)
    shard = Shard(model, pieces, dense, memory, Views(memory), servers=place.of)
    shard.vector.restore(slots, max(int(file.meta["updates"]) for file in files))
    # rows: the ids of this server, from all files; each counter is kept by one server
    version = max(counts_of(file) for file in files).version
    for name, table in shard.tables.items():
        table.reserve(sum(part.rows(place) for part in _parts(name, files)))
        for part in _parts(name, files):
            for ids, values, row_slots, marks in part.batches(place):
                table.restore(ids, values, row_slots, marks, version)
            table.restore_candidates(
                part.candidates[part.candidates[:, 0] % place.of == place.index]
            )
            if place.index == (part.server if part.server < place.of else 0):
                table.counts.add(part.counts)
    # progress: the farthest of all files, so that no trainer repeats a push that is contained
    shard.counts = max(counts_of(file) for file in files)
    shard.data.load(files[0].meta.get("data"))  # only server 0's position is used
    newest: dict[str, int] = {}
    for process, number in (entry for file in files for entry in file.meta["applied"]):
        newest[process] = max(int(number), newest.get(process, 0))
    shard.applied.update(list(newest.items())[-MAX_PROCESSES:])
    return shard


def _trimmed(
    pages: Sequence[Array], size: int, width: int, dtype: type[np.generic] = np.float32
) -> list[Array]:
    """Returns the pages without the unused rows at the end."""
    trimmed_pages: list[Array] = []
    for page in pages:
        if size <= 0:
            break
        trimmed_pages.append(page[:size])
        size -= len(page)
    return trimmed_pages or [np.empty((0, width), dtype)]


def _gathered(pieces: list[Piece], files: Sequence[Frame]) -> tuple[Floats, Floats]:
    """Collects the dense elements of the pieces, and their slots, from all files."""
    size = sum(piece.size for piece in pieces)
    slots_wide = len(files[0].arrays["slots"])
    dense, slots = np.empty(size, np.float32), np.empty((slots_wide, size), np.float32)
    missing = np.ones(size, bool)
    for file in files:
        for ours, theirs in _overlaps(pieces, [Piece(**fields) for fields in file.meta["pieces"]]):
            dense[ours] = file.arrays["dense"][theirs]
            slots[:, ours] = file.arrays["slots"][:, theirs]
            missing[ours] = False
    if missing.any():
        raise ShardError(f"{int(missing.sum())} elements of dense parameters are missing in it")
    return dense, slots


def _overlaps(ours: list[Piece], theirs: list[Piece]) -> Iterator[tuple[slice, slice]]:
    """Yields slices of our vector and of theirs that hold the same elements."""
    pieces_by_name: dict[str, list[tuple[Piece, int]]] = {}
    at = 0
    for piece in theirs:
        pieces_by_name.setdefault(piece.name, []).append((piece, at))
        at += piece.size
    at = 0
    for piece in ours:
        for their_piece, their_offset in pieces_by_name.get(piece.name, ()):
            start, stop = max(piece.start, their_piece.start), min(piece.stop, their_piece.stop)
            if start < stop:
                our_start, size = at + start - piece.start, stop - start
                other_place = their_offset + start - their_piece.start
                yield slice(our_start, our_start + size), slice(other_place, other_place + size)
        at += piece.size


class _TablePart(NamedTuple):
    """The part of a table in one file."""

    server: int
    """Index of the server that wrote it."""
    ids: NDArray[np.int64]
    values: Floats
    slots: Floats
    marks: NDArray[np.int64] | None
    candidates: NDArray[np.int64]
    counts: dict[str, int]

    def rows(self, place: ShardPlace) -> int:
        """Returns the number of rows that belong to a server."""
        return int(np.count_nonzero(self.ids % place.of == place.index))

    def batches(
        self, place: ShardPlace
    ) -> Iterator[tuple[NDArray[np.int64], Floats, Floats, NDArray[np.int64] | None]]:
        """Yields the rows that belong to a server in batches: ids, values, slots, marks."""
        for at in range(0, len(self.ids), _ROWS_AT_ONCE):
            part = slice(at, at + _ROWS_AT_ONCE)
            own = np.flatnonzero(self.ids[part] % place.of == place.index)
            marks = None if self.marks is None else self.marks[part][own]
            yield self.ids[part][own], self.values[part][own], self.slots[part][own], marks


def _parts(name: str, files: Sequence[Frame]) -> Iterator[_TablePart]:
    """Yields the parts of a table in all files. Files of earlier versions lack some fields."""
    for index, file in enumerate(files):
        if name not in file.meta["tables"]:
            continue
        number = file.meta["tables"].index(name)
        ids, values = file.arrays[f"ids.{number}"], file.arrays[f"values.{number}"]
        slots = file.arrays.get(f"slots.{number}", np.empty((len(ids), 0), np.float32))
        marks = file.arrays.get(f"marks.{number}")
        lengths = {len(ids), len(values), len(slots)}
        if marks is not None:
            lengths.add(len(marks))
        if len(lengths) > 1:
            raise ShardError(
                f"table {name!r} has ids, rows and slots of different lengths {lengths}"
            )
        candidates = file.arrays.get(f"candidates.{number}", np.empty((0, 2), np.int64))
        counts = dict(file.meta["row_counts"][number]) if "row_counts" in file.meta else {}
        server = int(file.meta.get("index", index))
        yield _TablePart(server, ids, values, slots, marks, candidates, counts)
