"""Nobody can tell from the loss curve that members came, went and died."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.sdk.sync.curves import ACTS, differ, train
from tests.sdk.sync.fleets import ROOT

BATCH, EPOCHS = 32, 6
_FEWER = 3
"""Epochs where there is little time."""
_TOLERANCE, _ACCURACY = 1e-3, 0.005


@pytest.mark.timeout(600)
def test_the_curve_is_that_of_members_that_never_change(tmp_path: Path, *, thorough: bool) -> None:
    """The same losses but for rounding, and the same accuracy; five seeds if thorough."""
    epochs = EPOCHS if thorough else _FEWER
    data = tmp_path / "data"
    data.mkdir()
    make: dict[str, Any] = runpy.run_path(str(ROOT / "examples/models/make_data.py"))
    make["digits"](data)
    model = str(ROOT / "examples/models/digits_numpy.py")
    options = {"model": model, "data": str(data / "digits-train.npz"), "epochs": epochs}
    options |= {"test": str(data / "digits-test.npz"), "batch_size": BATCH, "steps": 45 * epochs}
    for seed in range(5 if thorough else 1):
        seeded = {**options, "seed": seed, "shuffle_seed": seed}
        fixed = train(tmp_path / f"fixed-{seed}", seeded)
        elastic = train(tmp_path / f"elastic-{seed}", seeded, acts=ACTS, pause_s=0.1)

        found = differ(fixed, elastic)
        assert len(fixed.losses) == 45 * epochs
        assert len(set(elastic.worlds)) > 1
        assert found.relative <= _TOLERANCE, found
        assert found.accuracy <= _ACCURACY, found
