"""The state of a model in numpy is handed over in parts, and each part stays the newest."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from edl import model as models
from edl.model.protocols import ReplicaAdapter
from edl.sync.parts import PartedReplica, cut
from edl.sync.replica import Micro

from tests.sdk.model.test_numpy import EXAMPLE, KINDS, NAMES

_TURNED = """

def model():
    network = Network()
    network.parameters["w1"] = network.parameters["w1"].T
    return network
"""


def _replica(folder: Path, seed: int, added: str) -> ReplicaAdapter:
    """Of the example, whose functions `added` replaces."""
    path = folder / f"net{seed}.py"
    path.write_text(EXAMPLE.read_text() + added)
    return models.replica(models.load(path), seed=seed)


def _backward(replica: ReplicaAdapter, seed: int) -> None:
    chance = np.random.default_rng(seed)
    images, labels = chance.random((16, 64)).astype(np.float32), chance.integers(0, 10, 16)
    replica.backward({"images": images, "labels": labels}, 1.0, Micro(seed, 0, seed))


@pytest.mark.parametrize(
    "settings",
    [
        *KINDS,
        {"kind": "adam", "learning_rate": 0.01, "weight_decay": 0.01, "clip_norm": 0.5},
        {"kind": "adam", "learning_rate": 0.01, "schedule": {"kind": "cosine", "versions": 9}},
    ],
    ids=[*NAMES, "clipped", "scheduled"],
)
def test_parts_of_different_steps_make_one_state(tmp_path: Path, settings: dict[str, Any]) -> None:
    """A newcomer applies each step to what it has, so that each part stays the newest."""
    optimizer = f"\n\ndef optimizer(parameters):\n    return {settings!r}\n"
    pair = [_replica(tmp_path, seed, optimizer) for seed in (0, 9)]
    old, new = (cast("PartedReplica", replica) for replica in pair)
    gradient = np.empty(pair[0].size, np.float32)
    _backward(pair[0], 0)
    pair[0].step(1.0)
    new.load_rest(old.rest())

    for number, part in enumerate(cut(old.groups(), 4_000), 1):
        for piece in part:
            for name in piece.names:
                new.write_slice(name, piece.start, old.read_slice(name, piece.start, piece.stop))
        _backward(pair[0], number)
        pair[0].read_gradient(gradient)
        pair[1].write_gradient(gradient)
        for replica in pair:
            replica.step(1.0)

    assert number > 3
    states = [replica.state() for replica in pair]
    assert all(
        np.array_equal(array, states[1].arrays[key]) for key, array in states[0].arrays.items()
    )
    assert states[0].extra == states[1].extra


def test_arrays_that_are_not_in_one_piece_are_handed_over_at_once(tmp_path: Path) -> None:
    """A flat view of such an array would be a copy, and what is written to it would be lost."""
    replicas = _replica(tmp_path, 0, ""), _replica(tmp_path, 1, _TURNED)
    whole, parted = (cast("PartedReplica", replica).groups() for replica in replicas)
    assert len(whole) == 4
    assert parted == []
