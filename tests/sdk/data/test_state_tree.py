"""States as bytes in a file."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edl import CheckpointError
from edl.data import state_tree


def roundtrip(path: Path, state: Any) -> Any:
    """Writes a state and reads it."""
    encoded = state_tree.encode(state)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(descriptor, encoded.size)
        encoded.write(descriptor)
        return state_tree.decode(descriptor)
    finally:
        os.close(descriptor)


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    """Keys that are numbers, tuples, arrays of all types and shapes, not in one piece, too."""
    arrays = [
        np.arange(6.0).reshape(2, 3),
        np.arange(10, dtype=np.int16)[::2],
        np.zeros((0, 4), np.float32),
        np.array(True),
        np.array([1 + 2j]),
        np.array("2026-01-01", "datetime64[D]"),
    ]
    state = {"model": {0: arrays[0], "1": (1, None, "x")}, "rest": [*arrays, {}, [], True, 0.5]}
    found = roundtrip(tmp_path / "state", state)
    assert found["model"]["1"] == (1, None, "x")
    assert found["rest"][len(arrays) :] == [{}, [], True, 0.5]
    for ours, theirs in zip(
        [found["model"][0], *found["rest"]], [arrays[0], *arrays], strict=False
    ):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert np.array_equal(ours, theirs)


class Tensor:
    """An array of another framework."""

    def numpy(self) -> Any:
        """As PaddlePaddle has it."""
        return np.ones(3, np.float32)


def test_tensors_of_other_frameworks_become_arrays(tmp_path: Path) -> None:
    """What has a method `numpy` is saved as what it returns."""
    assert roundtrip(tmp_path / "state", [Tensor()])[0].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (
            {"model": [1, {"f": print}]},
            r"state['model'][1]['f'] is of type builtin_function_or_method",
        ),
        ({"a": {None: 1}}, "state['a'] has the key None"),
        ([np.array([object()])], "state[0] is of type ndarray"),
    ],
)
def test_what_cannot_be_kept_is_named(state: Any, text: str) -> None:
    """With the place where it is; no code is ever saved."""
    with pytest.raises(CheckpointError) as error:
        state_tree.encode(state)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"a":0', b'"a":7'),
        (b'"<f8"', b'"|O8"'),
        (b'"shape":[3]', b'"shape":[9]'),
        (b'"numpy"', b'"torch"'),
        (b'"tree"', b'"true"'),
        (b"\x00\x00\x00\x00", b"\xff\xff\xff\xff"),
    ],
)
def test_damage_is_named(old: bytes, new: bytes, tmp_path: Path) -> None:
    """In a line, whatever it is."""
    roundtrip(tmp_path / "state", {"w": np.ones(3)})
    path = tmp_path / "damaged"
    path.write_bytes((tmp_path / "state").read_bytes().replace(old, new, 1))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(CheckpointError, match="snapshot"):
            state_tree.decode(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("length", [0, 5, 40, -1])
def test_one_that_is_cut_short_is_named(length: int, tmp_path: Path) -> None:
    """Wherever it ends."""
    roundtrip(tmp_path / "state", {"w": np.ones(3)})
    path = tmp_path / "damaged"
    path.write_bytes((tmp_path / "state").read_bytes()[:length])
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(CheckpointError, match="snapshot is damaged"):
            state_tree.decode(descriptor)
    finally:
        os.close(descriptor)
