"""Random changes to trainers in torch, as processes: curve, books, memory."""

import os
import sys
from collections import Counter
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pytest

from tests.sdk.sync.fleets import Fleet
from tests.sdk.sync.storms import Storm
from tests.sdk.torch.curves import CLOSE, alone, far_from, losses_of
from tests.support.storm_size import part_of

Json = dict[str, Any]
TORCH = Path(os.environ.get("EDL_TORCH_PATH") or Path(__file__).parents[3] / "build/torch")
CHANGES = int(os.environ.get("EDL_TORCH_CHANGES") or part_of(200))
SEED = int(os.environ.get("EDL_TORCH_SEED") or 5)
SIZE, EPOCHS, RECORDS, BATCH = 8, 2 + CHANGES // 4, 4096, 64
OPTIONS: Json = {
    "torch": str(TORCH),
    "records": RECORDS,
    "batch_size": BATCH,
    "micro_batches": 8,
    "shuffle_seed": 1,
    "epochs": EPOCHS,
}
_PAUSE_S = 1.0
"""Of a step: all changes happen before the end."""
_PORTION = 25
"""Changes between two measurements; in the last of them the master is lost."""
_GROWTH_MB, _GROWTH_THREADS = 60.0, 8

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(600 + 35 * CHANGES),
    pytest.mark.skipif(
        not (TORCH / "torch").exists(), reason="no torch here: `make torch` installs it"
    ),
]


def summary(storm: Storm) -> str:
    """What happened: the pauses of steps, which contain that of each step, and the first members' resources."""
    pauses_s = sorted(change.pause_s for change in storm.changes)
    kinds = Counter(kind for change in storm.changes for kind in change.kind.split(" and "))
    return (
        f"seed {SEED}: {len(storm.changes) - 1} changes ({dict(kinds)}); longest time without a step, median "
        f"{median(pauses_s):.1f} s, longest {pauses_s[-1]:.1f} s; {storm.figures[0]} to {storm.figures[-1]}"
    )


def test_random_changes_leave_no_trace(tmp_path: Path) -> None:
    """200 of them to eight: loss within 1e-5, each record trained once an epoch, memory flat."""
    for name in ("alone", "storm"):
        (tmp_path / name).mkdir()
    curve, end = alone(tmp_path / "alone", OPTIONS)
    hurry = tmp_path / "hurry"
    options = {**OPTIONS, "hurry": str(hurry), "pause_s": _PAUSE_S, "go": str(tmp_path / "go")}
    with Fleet(tmp_path / "storm", options, program="tests.sdk.torch.program") as fleet:
        storm = Storm(fleet, SIZE, Random(SEED))  # noqa: S311 - decides which changes are made
        storm.begin()
        for done in range(0, CHANGES, _PORTION):
            storm.blow(min(_PORTION, CHANGES - done))
            storm.measure()
        ends = storm.finish(hurry)
        status = fleet.status()
    sys.stdout.write(f"{summary(storm)}\n")
    assert losses_of(fleet.members).keys() == curve.keys()
    far = far_from(curve, losses_of(fleet.members))
    assert not far, far
    dataset = status["datasets"]["train"]
    assert (status["state"], dataset["done_records"]) == ("done", RECORDS * EPOCHS)
    assert dataset["dropped_records"] == 0
    whole = [member.end for member in ends if member.end is not None and not member.end["late"]]
    assert whole
    assert {line["steps"] for line in whole} == {end["steps"]}
    assert all(abs(line["digest"] - end["digest"]) <= CLOSE * end["digest"] for line in whole)
    for first, last in zip(
        storm.figures[min(1, len(storm.figures) - 1)], storm.figures[-1], strict=True
    ):
        assert last["memory_mb"] - first["memory_mb"] <= _GROWTH_MB, storm.figures
        assert last["threads"] - first["threads"] <= _GROWTH_THREADS, storm.figures
