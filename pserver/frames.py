"""Frames of `edl_protocol.frames` with the JSON of a server. Pure."""

import orjson
from edl_protocol.frames import FrameFormat

_FORMAT = FrameFormat(orjson.dumps, orjson.loads)
encode, decode = _FORMAT.encode, _FORMAT.decode
