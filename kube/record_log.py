"""The decision log on the API server: how records are stored in DecisionLogs, and how to read them.

Pure except for `read`. A segment is one object. Its records are lines of JSON, compressed, in base64. The
reconciler writes them (`reconciler.records.writer`). Every caller who may list DecisionLogs in a namespace can
read them.
"""

import base64
import binascii
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from kube import reading
from kube.api import Api
from kube.request import DECISIONLOGS
from policy import records
from policy.records import Record
from policy.timestamps import timestamp

VERSION = 1
"""Version of the lines; segments of other versions are skipped."""
LABEL_LOG = "edl.training/log"
"""Label of a DecisionLog; its value is CURRENT or HISTORY."""
CURRENT = "current"
"""The newest decision about each job of the namespace, with its newest figures."""
HISTORY = "history"
"""Past decisions and observations, in order."""
_LEVEL = 6
_MAX_BYTES = 8 << 20
"""Limit for the lines of one segment. EDL never writes more, so another client has written a larger segment."""


def line(record: Record) -> bytes:
    """Returns a record as a line of a segment."""
    return orjson.dumps(record.to_json())


def encode(lines: Sequence[bytes], first_s: float, last_s: float) -> dict[str, Any]:
    """Returns the fields of a DecisionLog with these lines, whose times are from `first_s` to `last_s`."""
    packed = gzip.compress(b"\n".join(lines), _LEVEL, mtime=0)
    return {
        "version": VERSION,
        "count": len(lines),
        "first": timestamp(first_s),
        "last": timestamp(last_s),
        "records": base64.b64encode(packed).decode(),
    }


def decode(segment: Mapping[str, Any], containing: str = "") -> list[Record]:
    """Returns the records of a DecisionLog; invalid lines are skipped.

    Args:
        segment: The object.
        containing: A text, such as a job's key. Only lines with this text are parsed.
    """
    if segment.get("version") != VERSION:
        return []
    try:
        packed = base64.b64decode(str(segment.get("records", "")), validate=True)
        lines = zlib.decompressobj(wbits=31).decompress(packed, _MAX_BYTES)
    except (binascii.Error, ValueError, zlib.error):
        return []
    return list(_parsed(_lines_with(lines, containing.encode())))


def _lines_with(lines: bytes, needle: bytes) -> Iterator[bytes]:
    """Yields the lines that contain a text; skips quickly over others, because only a few lines match."""
    if not needle:
        yield from lines.split(b"\n")
        return
    end = 0
    while (position := lines.find(needle, end)) >= 0:
        begin = lines.rfind(b"\n", 0, position) + 1
        end = lines.find(b"\n", position)
        end = len(lines) if end < 0 else end
        yield lines[begin:end]


def _parsed(lines: Iterable[bytes]) -> Iterable[Record]:
    for line in lines:
        try:
            yield records.from_json(orjson.loads(line))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
            continue


def read(
    api: Api,
    namespace: str | None = None,
    *,
    only_current: bool = False,
    containing: str = "",
) -> list[Record]:
    """Returns the records of one namespace, or of all, in order of time.

    Args:
        api: Sends the requests.
        namespace: The namespace; None for all.
        only_current: Whether to return only the newest decision about each job.
        containing: A text. Only records with this text are returned.

    Raises:
        NotFound: The API server does not have the kind, because EDL is not installed.
        Forbidden: The caller may not list DecisionLogs in this namespace, or in all namespaces.
        KubeError: Another failure.
    """
    labels = f"{LABEL_LOG}={CURRENT}" if only_current else ""
    segments = reading.list_all(api, DECISIONLOGS, namespace, labels=labels)
    return records.merged(record for segment in segments for record in decode(segment, containing))
