"""Record files: an index gives direct access to each record, and each record has a checksum.

    with edl.records.Writer("train.rec") as writer:
        writer.write(b"...")
    data = edl.from_records("train", "train.rec")

The layout of a file is little-endian, with sizes in bytes in parentheses:

- magic (8);
- for each record: its length (4), the CRC-32 of its bytes (4), and its bytes;
- the index: for each record its offset (8);
- a footer: the index's offset (8), the number of records (8), the CRC-32 of the index and these two
  numbers (4), magic (4).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import sys
import weakref
import zlib
from array import array
from pathlib import Path
from types import TracebackType
from typing import IO, Union, final

from edl.errors import DataError, RecordError

PathLike = Union[str, "os.PathLike[str]"]
_MAGIC = b"EDLREC1\n"
_END = b"EDLX"
_HEAD = struct.Struct("<II")
_NUMBERS = struct.Struct("<QQ")
_FOOTER = struct.Struct("<QQI4s")
_OFFSET_BYTES = 8
MAX_BYTES = 0xFFFFFFFF
"""Maximum length of a record."""


@final
class Writer:
    """Writes a new record file, which appears under its name only when it is complete."""

    def __init__(self, path: PathLike) -> None:
        self._path = Path(path)
        self._temporary = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}.tmp")
        self._offsets = array("Q")
        self._place = len(_MAGIC)
        self._file: IO[bytes] | None = self._temporary.open("xb")  # "x" does not follow links
        self._file.write(_MAGIC)

    def write(self, record: bytes | bytearray | memoryview) -> int:
        """Appends a record and returns its number, from 0.

        Raises:
            DataError: The writer is closed, or the record is not bytes or is longer than `MAX_BYTES`.
        """
        if self._file is None:
            raise DataError(f"{self._path} is closed: nothing can be added to it")
        if not isinstance(record, bytes):
            record = _bytes(record)
        if len(record) > MAX_BYTES:
            raise DataError(f"a record of {len(record)} bytes is longer than {MAX_BYTES}")
        self._file.write(_HEAD.pack(len(record), zlib.crc32(record)))
        self._file.write(record)
        self._offsets.append(self._place)
        self._place += _HEAD.size + len(record)
        return len(self._offsets) - 1

    def close(self) -> None:
        """Writes the index, makes the file durable, and renames it to its final name.

        Raises:
            OSError: The file cannot be written; the unfinished file is deleted.
        """
        file, self._file = self._file, None
        if file is None:
            return
        try:
            self._finish(file)
            self._temporary.replace(self._path)
        except BaseException:
            self._temporary.unlink(missing_ok=True)
            raise

    def _finish(self, file: IO[bytes]) -> None:
        with file:
            index = _little(self._offsets).tobytes()
            numbers = _NUMBERS.pack(self._place, len(self._offsets))
            file.write(index + numbers)
            file.write(struct.pack("<I4s", zlib.crc32(index + numbers), _END))
            file.flush()
            os.fsync(file.fileno())

    def discard(self) -> None:
        """Deletes the unfinished file."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # closing flushes, which fails on a full disk
                file.close()
            self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Completes the file; after an exception, deletes it."""
        if kind is None:
            self.close()
        else:
            self.discard()


@final
class Reader:
    """Reads records of a file by their number, as in `reader[5]`; thread-safe."""

    def __init__(self, path: PathLike) -> None:
        """Opens a file and reads its index, which takes 8 bytes of memory per record.

        Raises:
            DataError: The file cannot be read, is not a record file, or is cut short.
        """
        self.path = Path(path)
        try:
            self._file = os.open(self.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise DataError(f"{self.path} cannot be read: {error.strerror}") from error
        self._closer = weakref.finalize(self, os.close, self._file)
        try:
            self._end, self._offsets = self._index()
        except OSError as error:
            raise DataError(f"{self.path} cannot be read: {error.strerror}") from error

    def _index(self) -> tuple[int, array[int]]:
        if os.pread(self._file, len(_MAGIC), 0) != _MAGIC:
            raise DataError(f"{self.path} is not a record file: edl.records.Writer makes one")
        size = os.fstat(self._file).st_size
        cut = DataError(
            f"{self.path} has no complete index: it was cut short or changed; copy it again"
        )
        if size < len(_MAGIC) + _FOOTER.size:
            raise cut
        footer = os.pread(self._file, _FOOTER.size, size - _FOOTER.size)
        place, count, crc, end = _FOOTER.unpack(footer)
        length = count * _OFFSET_BYTES
        if end != _END or place + length + _FOOTER.size != size:
            raise cut
        index = os.pread(self._file, length, place)  # the check above limits it to the file's size
        if zlib.crc32(index + _NUMBERS.pack(place, count)) != crc:
            raise cut
        offsets = array("Q")
        offsets.frombytes(index)
        return place, _little(offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, number: int) -> bytes:
        """Returns a record by its number.

        Raises:
            IndexError: The file has no record with this number.
            RecordError: The record's checksum is wrong.
        """
        if not 0 <= number < len(self._offsets):
            raise IndexError(
                f"{self.path} has {len(self._offsets)} records, not one of number {number}"
            )
        begin = self._offsets[number]
        last = number + 1 == len(self._offsets)
        end = self._end if last else self._offsets[number + 1]
        # an index from another program may have wrong offsets: records lie between magic and index
        within = len(_MAGIC) <= begin <= end <= self._end and end - begin <= _HEAD.size + MAX_BYTES
        raw = os.pread(self._file, end - begin, begin) if within else b""
        if len(raw) >= _HEAD.size:
            length, crc = _HEAD.unpack_from(raw)
            record = raw[_HEAD.size :]
            if len(record) == length and zlib.crc32(record) == crc:
                return record
        raise RecordError(number, f"{self.path.name}: its checksum is wrong, the file was changed")

    def close(self) -> None:
        """Closes the file; may be called twice. Garbage collection of the reader closes it, too."""
        self._closer()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bytes(record: object) -> bytes:
    """Returns the bytes of a buffer, such as an array, because its length may count elements."""
    try:
        return memoryview(record).tobytes()  # type: ignore[arg-type]
    except TypeError as error:
        kind = type(record).__name__
        raise DataError(f"a record is {kind!r:.80}: write bytes, such as text.encode()") from error


def _little(offsets: array[int]) -> array[int]:
    """Converts offsets between this machine's byte order and the file's, which is little-endian."""
    if sys.byteorder != "little":
        offsets = offsets[:]
        offsets.byteswap()
    return offsets
