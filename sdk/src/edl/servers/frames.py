"""Frames of `edl_protocol.frames` with the JSON of the standard library."""

from __future__ import annotations

import json
from typing import Any

from edl import json_text
from edl_protocol.frames import FrameFormat


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


_FORMAT = FrameFormat(_dumps, json_text.loads)
encode, decode = _FORMAT.encode, _FORMAT.decode
