"""Files of parameters: arrays come out, and nothing else can happen."""

import codecs
import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edl import CheckpointError
from edl.model.pickled_arrays import read_arrays

ARRAYS: dict[str, Any] = {
    "fc.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "fc.bias": np.ones(3),
}


def _file(path: Path, content: Any, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(content, protocol))
    return path


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("container", [dict, OrderedDict])
def test_arrays_are_read(tmp_path: Path, protocol: int, container: Any) -> None:
    """In all protocols of `paddle.save`, without its entry of inner names."""
    content = container({**ARRAYS, "StructuredToParameterName@@": {"fc.weight": "linear_0.w_0"}})
    arrays = read_arrays(_file(tmp_path / "model.pdparams", content, protocol))

    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert np.array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype


class _Call:
    """An object whose pickle calls a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._reduced = (function, arguments)

    def __reduce__(self) -> Any:
        return self._reduced


@pytest.mark.parametrize("place", ["value", "key", "whole"])
def test_a_file_cannot_call_functions(tmp_path: Path, place: str) -> None:
    """`paddle.load` would call them: PaddlePaddle's issue 77735."""
    trace = tmp_path / "called"
    call = _Call(os.mkdir, str(trace))
    content = {"value": {"x": call}, "key": {"x": [call]}, "whole": call}[place]
    with pytest.raises(CheckpointError, match=r"model.pdparams would call posix.mkdir"):
        read_arrays(_file(tmp_path / "model.pdparams", content))
    assert not trace.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "holds list instead of a dict of arrays"),
        ({"x": 1}, "holds 'x', which is not an array of numbers"),
        ({"x": np.array([None])}, "holds numbers of type 'O8'"),
        ({"x": np.ndarray}, "holds 'x', which is not an array of numbers"),
        ({"x": _Call(eval, "1")}, "would call builtins.eval"),
    ],
)
def test_other_contents_are_refused(tmp_path: Path, content: Any, message: str) -> None:
    """By name, in one line."""
    with pytest.raises(CheckpointError, match=message):
        read_arrays(_file(tmp_path / "model.pdparams", content))


class _Claim:
    """An array whose bytes are a number of bytes."""

    def __reduce__(self) -> Any:
        reduced: Any = np.ones(3, np.uint8).__reduce__()
        function, arguments, state = reduced[:3]
        return function, arguments, (state[0], (10**12,), state[2], False, 10**12)


def test_an_array_has_no_more_bytes_than_its_file(tmp_path: Path) -> None:
    """A few bytes of a pickle make no terabyte of zeros."""
    with pytest.raises(CheckpointError, match="holds int instead of an array's bytes"):
        read_arrays(_file(tmp_path / "model.pdparams", {"w": _Claim()}))


def test_a_number_of_an_object_takes_no_memory(tmp_path: Path) -> None:
    """A table of 2^31 places for one dictionary: the file is refused before it is read."""
    file = tmp_path / "model.pdparams"
    file.write_bytes(b"\x80\x04}r" + (1 << 31).to_bytes(4, "little") + b".")
    with pytest.raises(CheckpointError, match="has a memo number 2147483648"):
        read_arrays(file)


class _Bytes:
    """Bytes as protocol 2 writes them: a text and how it is encoded."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def __reduce__(self) -> Any:
        return codecs.encode, self._arguments


def test_what_a_file_names_again_takes_no_memory_again(tmp_path: Path) -> None:
    """Neither bytes nor entries of a mapping are copied as often as the file calls for them."""
    text, entries = "x" * 1000, [(number, 0) for number in range(1000)]
    copies = [_Bytes(text, "latin1") for _ in range(10)]
    with pytest.raises(CheckpointError, match="decodes more bytes than its size"):
        read_arrays(_file(tmp_path / "bytes.pdparams", {"w": copies}))
    mappings = [_Call(OrderedDict, entries) for _ in range(10)]
    with pytest.raises(CheckpointError, match=r"cannot read .*mappings\.pdparams"):
        read_arrays(_file(tmp_path / "mappings.pdparams", {"w": mappings}))


def test_bytes_are_encoded_in_one_way(tmp_path: Path) -> None:
    """Others, such as punycode, take hours for a megabyte."""
    with pytest.raises(
        CheckpointError, match="holds bytes encoded as 'punycode' instead of latin1"
    ):
        read_arrays(_file(tmp_path / "model.pdparams", {"w": _Bytes("x", "punycode")}))


def test_arrays_may_share_their_bytes(tmp_path: Path) -> None:
    """The same array under two names is in the file once, in each protocol."""
    weights = np.arange(1000.0)
    for protocol in (2, 3, 4, 5):
        path = _file(tmp_path / "model.pdparams", {"a": weights, "b": weights}, protocol)
        arrays = read_arrays(path)
        assert path.stat().st_size < 2 * weights.nbytes + 1000
        assert np.array_equal(arrays["a"], weights)
        assert np.array_equal(arrays["b"], weights)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """Whatever the damage makes the reader raise."""
    path = _file(tmp_path / "model.pdparams", ARRAYS)
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"model.pdparams"):
            read_arrays(path)
    with pytest.raises(CheckpointError, match="cannot read"):
        read_arrays(tmp_path / "missing")
