"""The decision log in the API server: how records lie in objects of the kind DecisionLog, and how to read them.

Pure but for `read`. A segment is one object; its records are lines of JSON, compressed, as base64. The
reconciler writes them (`reconciler.records.writer`); whoever may list the kind in a namespace reads them.
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
"""Of the lines; a reader leaves segments of other versions out."""
LABEL_LOG = "edl.training/log"
"""On a DecisionLog: whether it is CURRENT or HISTORY."""
CURRENT = "current"
"""The newest decision about each job of the namespace, with its newest figures."""
HISTORY = "history"
"""What has happened, in order."""
_LEVEL = 6
_MAX_BYTES = 8 << 20
"""Of the lines of one segment; more than EDL writes is somebody else's."""


def line(record: Record) -> bytes:
    """A record as a line of a segment."""
    return orjson.dumps(record.to_json())


def encode(lines: Sequence[bytes], first_s: float, last_s: float) -> dict[str, Any]:
    """The fields of a DecisionLog with these lines, whose records are of the times between."""
    packed = gzip.compress(b"\n".join(lines), _LEVEL, mtime=0)
    return {
        "version": VERSION,
        "count": len(lines),
        "first": timestamp(first_s),
        "last": timestamp(last_s),
        "records": base64.b64encode(packed).decode(),
    }


def decode(segment: Mapping[str, Any], containing: str = "") -> list[Record]:
    """The records of a DecisionLog; what is not a record is left out.

    Args:
        segment: The object.
        containing: Only records with this text are parsed: a job's among thousands.
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
    """The lines that contain a text; one search, as most segments have a few of a job among hundreds."""
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
    """The records of a namespace, or with None of all, in order of time.

    Args:
        api: The API server.
        namespace: None for all namespaces.
        only_current: Whether the newest decision about each job is enough.
        containing: Only records with this text.

    Raises:
        NotFound: the API server does not have the kind: there is no EDL.
        Forbidden: the caller may not list it there.
        KubeError: another failure.
    """
    labels = f"{LABEL_LOG}={CURRENT}" if only_current else ""
    segments = reading.list_all(api, DECISIONLOGS, namespace, labels=labels)
    return records.merged(record for segment in segments for record in decode(segment, containing))
