"""Frames: one format for servers and SDK, each with its JSON library."""

import struct
from typing import Any
from zlib import crc32

import numpy as np
import orjson
import pytest
from edl.servers import frames as sdk
from edl_protocol.frames import Body, Frame, FrameError
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from pserver import frames
from tests.support.strategies import CALM

SHAPES = arrays_of.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=5)
ARRAYS = st.dictionaries(
    st.text(max_size=5),
    st.one_of(
        arrays_of.arrays(np.float32, SHAPES, elements=st.floats(-1, 1, width=32)),
        arrays_of.arrays(np.int64, SHAPES),
    ),
    max_size=4,
)
META = st.dictionaries(st.text(max_size=5), st.integers(-5, 5) | st.text(max_size=9), max_size=3)


def _same(decoded: Any, arrays: dict[str, Any]) -> None:
    assert list(decoded) == list(arrays)
    for name, array in arrays.items():
        assert decoded[name].dtype == array.dtype
        assert np.array_equal(decoded[name], array)
        assert decoded[name].shape == array.shape


@CALM
@given(META, ARRAYS)
def test_what_one_side_writes_the_other_reads(
    meta: dict[str, Any], arrays: dict[str, np.ndarray[Any, Any]]
) -> None:
    """Headers of the standard library's JSON and of orjson mean the same."""
    theirs = frames.decode(b"".join(sdk.encode(meta, arrays)))
    ours = sdk.decode(bytearray(b"".join(frames.encode(meta, arrays))))

    assert theirs.meta == ours.meta == meta
    _same(theirs.arrays, arrays)
    _same(ours.arrays, arrays)


def _whole() -> bytes:
    return b"".join(frames.encode({"a": 1}, {"x": np.arange(5, dtype=np.float32)}))


@CALM
@given(st.data())
def test_a_changed_byte_is_found(data: st.DataObject) -> None:
    """Wherever it is."""
    raw = bytearray(_whole())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))

    with pytest.raises(FrameError):
        frames.decode(raw)
    with pytest.raises(FrameError):
        sdk.decode(raw)


@CALM
@given(st.integers(0, len(_whole()) - 1))
def test_a_cut_frame_is_none(size: int) -> None:
    """However short."""
    with pytest.raises(FrameError):
        frames.decode(_whole()[:size])


def _frame_with_header(header: Any, tail: bytes = b"") -> bytes:
    """A frame with a checksum that is right, whatever its header says."""
    raw = header if isinstance(header, bytes) else orjson.dumps(header)
    data = struct.pack("<4sI", b"EDLF", len(raw)) + raw
    data += bytes(-len(data) % 8) + tail
    return data + struct.pack("<I", crc32(data))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{", "not a JSON object"),
        ([], "not a JSON object"),
        ({"meta": [], "arrays": []}, "not a JSON object"),
        ({"meta": {}, "arrays": [["x", "float64", [1]]]}, "where an array should be"),
        ({"meta": {}, "arrays": [["x", "float32", [1, 1, 1]]]}, "where an array should be"),
        ({"meta": {}, "arrays": [["x", "float32", [-1]]]}, "where an array should be"),
        ({"meta": {}, "arrays": [["x", "float32", [True]]]}, "where an array should be"),
        ({"meta": {}, "arrays": [["x", "float32", [1 << 60]]]}, "where an array should be"),
        ({"meta": {}, "arrays": [["x", "float32", [1 << 50]]]}, "should have"),
        (
            {"meta": {}, "arrays": [["x", "float32", [0, (1 << 63) - 1]]]},
            "where an array should be",
        ),
        (b'{"meta":{},"arrays":[["x","float32",[Infinity]]]}', "not a JSON object"),
        (b'{"meta":' + b"[" * 100_000, "not a JSON object"),
        ({"meta": {}, "arrays": [["x", "float32", [0]]] * 2}, "one name"),
        ({"meta": {}, "arrays": [["x", "float32", [0]]] * 5000}, "not a JSON object"),
    ],
)
def test_a_header_that_lies_is_refused(header: Any, message: str) -> None:
    """Nothing is allocated because it says so."""
    for decode in (frames.decode, sdk.decode):
        with pytest.raises(FrameError, match=message):
            decode(_frame_with_header(header))


def test_a_header_longer_than_the_frame_is_refused() -> None:
    """As is one of another kind."""
    with pytest.raises(FrameError, match="too long, or truncated"):
        frames.decode(struct.pack("<4sI", b"EDLF", 1 << 30) + bytes(20))
    with pytest.raises(FrameError, match="does not begin"):
        frames.decode(b"<html>hello</html>")


def test_a_list_of_arrays_is_written_as_one() -> None:
    """Pages need not be put together before."""
    pages: Body = [np.full((2, 3), 1, np.float32), np.full((1, 3), 2, np.float32)]
    frame: Frame = frames.decode(b"".join(frames.encode({}, {"x": pages})))

    assert frame.arrays["x"].tolist() == [[1] * 3, [1] * 3, [2] * 3]


@pytest.mark.parametrize(
    "body",
    [
        np.zeros(1, np.float64),
        np.zeros((1, 1, 1), np.float32),
        [np.zeros((1, 2), np.float32), np.zeros((1, 3), np.float32)],
    ],
)
def test_other_arrays_cannot_be_written(body: Any) -> None:
    """That would be a mistake of ours."""
    with pytest.raises(FrameError, match="array 'x'"):
        frames.encode({}, {"x": body})
