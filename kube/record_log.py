"""The decision log in the API server: how records lie in objects of the kind DecisionLog, and how to read them.

Pure but for `read`. A segment is one object; its records are lines of JSON, compressed, as base64. The
reconciler writes them (`reconciler.record_writer`); whoever may list the kind in a namespace reads them.
"""

import base64
import binascii
import gzip
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from kube import reading
from kube.api import Api
from kube.request import DECISIONLOGS
from policy import records
from policy.records import Record

VERSION = 1
"""Of the lines; a reader leaves segments of other versions out."""
_LEVEL = 6
_MAX_BYTES = 8 << 20
"""Of the lines of one segment; more than EDL writes is somebody else's."""


def encode(segment_records: Sequence[Record]) -> dict[str, Any]:
    """The fields of a DecisionLog with these records, at least one, the oldest first."""
    lines = b"\n".join(orjson.dumps(record.to_json()) for record in segment_records)
    return {
        "version": VERSION,
        "count": len(segment_records),
        "first": _time(segment_records[0].at_s),
        "last": _time(segment_records[-1].at_s),
        "records": base64.b64encode(gzip.compress(lines, _LEVEL, mtime=0)).decode(),
    }


def decode(segment: Mapping[str, Any]) -> list[Record]:
    """The records of a DecisionLog; what is no record is left out."""
    if segment.get("version") != VERSION:
        return []
    try:
        packed = base64.b64decode(str(segment.get("records", "")), validate=True)
        lines = zlib.decompressobj(wbits=31).decompress(packed, _MAX_BYTES)
    except (binascii.Error, ValueError, zlib.error):
        return []
    return list(_parsed(lines.split(b"\n")))


def _parsed(lines: Iterable[bytes]) -> Iterable[Record]:
    for line in lines:
        try:
            yield records.from_json(orjson.loads(line))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
            continue


def read(api: Api, namespace: str | None = None) -> list[Record]:
    """The records of a namespace, or with None of all, in order of time.

    Raises:
        NotFound: the API server does not have the kind: there is no EDL.
        Forbidden: the caller may not list it there.
        KubeError: another failure.
    """
    segments = reading.list_all(api, DECISIONLOGS, namespace)
    return records.merged(record for segment in segments for record in decode(segment))


def _time(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
