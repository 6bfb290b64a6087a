"""The loss curve does not show that members joined, left and died."""

import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.sdk.sync.curves import ACTS, MEMBERS, SPARES, Act, differ, train, train_alone
from tests.sdk.sync.fleets import ROOT

BATCH = 32
_TOLERANCE, _ACCURACY = 1e-3, 0.005
FEW: Sequence[tuple[float, Act]] = (
    (0.1, lambda storm: storm.lose(storm.fleet.ranked()[0], "kill")),
    (0.3, lambda storm: storm.grow()),
    (0.5, lambda storm: storm.lose(storm.fleet.ranked()[-1], "stop")),
)


@pytest.mark.soak  # `make test` has the same with threads: test_train and test_group_model
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "epochs", "members", "acts"),
    [(0, 1, 2, FEW), *((seed, 6, MEMBERS, ACTS) for seed in range(5))],
)
def test_the_curve_is_that_of_members_that_never_change(
    tmp_path: Path,
    seed: int,
    epochs: int,
    members: int,
    acts: Sequence[tuple[float, Act]],
) -> None:
    """The same losses but for rounding, and the same accuracy."""
    data = tmp_path / "data"
    data.mkdir()
    make: dict[str, Any] = runpy.run_path(str(ROOT / "examples/models/make_data.py"))
    make["digits"](data)
    model = str(ROOT / "examples/models/digits_numpy.py")
    options = {"model": model, "data": str(data / "digits-train.npz"), "epochs": epochs}
    options |= {"test": str(data / "digits-test.npz"), "batch_size": BATCH, "steps": 45 * epochs}
    options |= {"seed": seed, "shuffle_seed": seed, "micro_batches": 8}
    few = acts is FEW
    # in steps of one trainer nothing is summed over members: those of many must not differ
    if few:
        fixed = train_alone(tmp_path / "fixed", options)
    else:
        fixed = train(tmp_path / "fixed", options, members=members)
    elastic = train(
        tmp_path / "elastic",
        options,
        acts=acts,
        pause_s=0.05 if few else 0.1,
        members=members,
        spares=1 if few else SPARES,
    )

    difference = differ(fixed, elastic)
    assert len(fixed.losses) == 45 * epochs
    assert len(set(elastic.worlds)) > 1
    assert difference.relative <= _TOLERANCE, difference
    assert difference.accuracy <= _ACCURACY, difference
