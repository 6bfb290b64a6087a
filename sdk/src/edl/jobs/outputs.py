"""What a prediction job writes: a file for each task, whole or absent, whose names sort as records do."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edl import wire
from edl.book import Portion
from edl.errors import DataError

Arrays = dict[str, Any]
"""By name; the first axis is records."""
INDEX = "index.json"
_TAKEN = {"file", "allow_pickle"}
_PART = re.compile(r"part-(\d{5})-(\d{12})\.npz")


class Part(NamedTuple):
    """A file that is there."""

    path: Path
    file: int
    """Number of the input file, in the order of the data set; 0 where it has none."""
    start: int
    """Its first record in that file."""


class Outputs:
    """Collects what the model said of tasks' records; of one loop."""

    def __init__(self, folder: Path, shape: wire.Json) -> None:
        """Makes the folder.

        Args:
            folder: Where the files go.
            shape: The data set's description.
        """
        self._folder = folder
        self._files = {one["name"]: number for number, one in enumerate(shape.get("files", ()))}
        self._open: dict[tuple[str, int], list[Arrays]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, portions: Sequence[Portion], found: Arrays) -> None:
        """A batch's outputs; what completes a task is on the disk when this returns."""
        at = 0
        for portion in portions:
            lease, end = portion.lease, at + portion.size
            piece = {name: np.asarray(array)[at:end] for name, array in found.items()}
            at = end
            pieces = self._open.setdefault((lease.task, lease.attempt), [])
            pieces.append(piece)
            have = sum(len(next(iter(one.values()))) for one in pieces)
            if have < lease.size:
                continue
            del self._open[lease.task, lease.attempt]
            number = self._files.get(lease.file or "", 0)
            _write(self._folder / f"part-{number:05d}-{lease.start:012d}.npz", joined(pieces))


def joined(pieces: Sequence[Mapping[str, Any]]) -> Arrays:
    """Arrays one behind the other."""
    return {name: np.concatenate([one[name] for one in pieces]) for name in pieces[0]}


def parts(folder: Path) -> list[Part]:
    """The files of a folder, in order of their records."""
    named = ((_PART.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted(
        (Part(path, int(match[1]), int(match[2])) for match, path in named if match),
        key=lambda one: one[1:],
    )


def finish(folder: Path, shape: wire.Json, whole: Path | None) -> list[str]:
    """Writes the index, and all outputs in one file where that is wanted.

    Args:
        folder: The parts'.
        shape: The data set's description.
        whole: The one file; None for none.

    Returns:
        Records without outputs, as words; their tasks were dropped.
    """
    lengths = {one: _length(one.path) for one in parts(folder)}
    sizes = [int(one["records"]) for one in shape.get("files", ())] or [int(shape["records"])]
    told = [
        {"name": one.path.name, "file": one.file, "start": one.start, "records": length}
        for one, length in lengths.items()
    ]
    missing = list(_gaps(sizes, lengths))
    text = json.dumps({"parts": told, "missing": missing}, indent=1)
    temporary = folder / f".{INDEX}.{os.getpid()}.tmp"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(folder / INDEX)
    if whole is not None and lengths:
        _write(whole, joined([_read(one.path) for one in lengths]))
    return missing


def _gaps(sizes: Sequence[int], lengths: Mapping[Part, int]) -> Iterator[str]:
    for number, size in enumerate(sizes):
        at = 0
        for one, length in lengths.items():
            if one.file != number:
                continue
            if one.start > at:
                yield f"records {at} to {one.start - 1} of file {number}"
            at = one.start + length
        if at < size:
            yield f"records {at} to {size - 1} of file {number}"


def _length(path: Path) -> int:
    with np.load(path, allow_pickle=False) as found:
        return len(found[found.files[0]])


def _read(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as found:
        return dict(found)


def _write(path: Path, arrays: Arrays) -> None:
    """Whole under its name, or not at all."""
    for name in _TAKEN & arrays.keys():
        raise DataError(f"outputs cannot be named {name!r}, which numpy.savez keeps for itself")
    for name, one in arrays.items():  # savez's own check is an array's name to numpy before 2.1
        if np.asarray(one).dtype.hasobject:
            raise DataError(
                f"output {name!r} holds Python objects: return arrays of numbers or text"
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
