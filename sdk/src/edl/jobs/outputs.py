"""Writes predictions: one file per task, written atomically, with names that sort like the records."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edl.errors import DataError
from edl.master import protocol
from edl.master.leases import Portion

Arrays = dict[str, Any]
"""Name -> array; the first axis counts records."""
INDEX = "index.json"
_RESERVED_NAMES = {"file", "allow_pickle"}
_PART = re.compile(r"part-(\d{5})-(\d{12})\.npz")


class Part(NamedTuple):
    """An output file."""

    path: Path
    file: int
    """Index of the input file in the data set; 0 for data sets without files."""
    start: int
    """Number of the first record in that input file."""


class OutputWriter:
    """Collects the predictions of one loop and writes a file for each complete task."""

    def __init__(self, folder: Path, shape: protocol.Json) -> None:
        """Creates the folder if it is missing.

        Args:
            folder: Folder for the output files.
            shape: Description of the data set.
        """
        self._folder = folder
        self._files = {file["name"]: number for number, file in enumerate(shape.get("files", ()))}
        self._open: dict[tuple[str, int], list[Arrays]] = {}
        with _named_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def add(self, portions: Sequence[Portion], outputs: Arrays) -> None:
        """Adds the outputs of a batch, and writes the files of tasks that are now complete."""
        at = 0
        for portion in portions:
            lease, end = portion.lease, at + portion.size
            piece = {name: np.asarray(array)[at:end] for name, array in outputs.items()}
            at = end
            pieces = self._open.setdefault((lease.task, lease.attempt), [])
            pieces.append(piece)
            have = sum(len(next(iter(arrays.values()))) for arrays in pieces)
            if have < lease.size:
                continue
            del self._open[lease.task, lease.attempt]
            number = self._files.get(lease.file or "", 0)
            _write(self._folder / f"part-{number:05d}-{lease.start:012d}.npz", concatenated(pieces))


def concatenated(pieces: Sequence[Mapping[str, Any]]) -> Arrays:
    """Concatenates the arrays of each name along the first axis."""
    return {name: np.concatenate([arrays[name] for arrays in pieces]) for name in pieces[0]}


def parts(folder: Path) -> list[Part]:
    """Returns the output files of a folder in record order."""
    matches = ((_PART.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted(
        (Part(path, int(match[1]), int(match[2])) for match, path in matches if match),
        key=lambda part: part[1:],
    )


def check_others(folder: Path, shape: protocol.Json, task_records: int) -> None:
    """Refuses a folder if this job's results would be mixed with output files of another job.

    Args:
        folder: Folder for the output files; it may be missing.
        shape: Description of the data set.
        task_records: Records per task.

    Raises:
        DataError: Another job has written a file, with other data or another task size.
    """
    sizes = _sizes(shape)
    for part in parts(folder) if folder.is_dir() else ():
        is_ours = part.file < len(sizes) and part.start < sizes[part.file]
        if not is_ours or part.start % task_records:
            raise DataError(
                f"{part.path} was written by a job with other data or another --batch-size and would "
                "be mixed with the outputs of this one: name another folder, or empty it"
            )


def finish(folder: Path, shape: protocol.Json, single_file: Path | None) -> list[str]:
    """Writes the index, and optionally all outputs in one file.

    Args:
        folder: Folder of the output files.
        shape: Description of the data set.
        single_file: File for all outputs; None if it is not wanted.

    Returns:
        Descriptions of the record ranges without outputs, because their tasks were dropped.
    """
    lengths = {part: _length(part.path) for part in parts(folder)}
    sizes = _sizes(shape)
    entries = [
        {"name": part.path.name, "file": part.file, "start": part.start, "records": length}
        for part, length in lengths.items()
    ]
    missing = list(_gaps(sizes, lengths))
    text = json.dumps({"parts": entries, "missing": missing}, indent=1)
    with _named_errors(folder / INDEX):
        temporary = folder / f".{INDEX}.{os.getpid()}.tmp"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(folder / INDEX)
    if single_file is not None and lengths:
        _write(single_file, concatenated([_read(part.path) for part in lengths]))
    return missing


def _sizes(shape: protocol.Json) -> list[int]:
    """Returns the number of records of each file; a data set without files counts as one file."""
    return [int(file["records"]) for file in shape.get("files", ())] or [int(shape["records"])]


def _gaps(sizes: Sequence[int], lengths: Mapping[Part, int]) -> Iterator[str]:
    for number, size in enumerate(sizes):
        at = 0
        for part, length in lengths.items():
            if part.file != number:
                continue
            if part.start > at:
                yield f"records {at} to {part.start - 1} of file {number}"
            at = part.start + length
        if at < size:
            yield f"records {at} to {size - 1} of file {number}"


def _length(path: Path) -> int:
    with np.load(path, allow_pickle=False) as archive:
        return len(archive[archive.files[0]])


def _read(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def _write(path: Path, arrays: Arrays) -> None:
    """Writes a file atomically."""
    for name in _RESERVED_NAMES & arrays.keys():
        raise DataError(f"an output cannot be named {name!r}: numpy.savez reserves this name")
    for name, array in arrays.items():  # before numpy 2.1, savez saves `allow_pickle` as an array
        if np.asarray(array).dtype.hasobject:
            raise DataError(
                f"output {name!r} holds Python objects: return arrays of numbers or strings"
            )
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with _named_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                np.savez(file, **arrays)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Turns an OSError into a DataError that names the path."""
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error
