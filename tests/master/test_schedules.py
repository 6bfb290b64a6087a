"""Thousands of schedules with faults: every record is acknowledged once an epoch."""

import shutil
from pathlib import Path
from random import Random

import pytest

from tests.master.ledger_calls import shape
from tests.master.world import World

FEW, SCHEDULES, THOROUGH = 10, 40, 1_000
"""Of each batch, each with another seed: in every run, with `make soak`, in `make properties`."""
STEPS = 120


def _play(root: Path, seed: int) -> World:
    chance = Random(seed)  # noqa: S311 - the same schedule in every run
    described = shape(
        records=chance.randint(1, 90),
        epochs=chance.choice([1, 2, 3]),
        shuffle_seed=chance.choice([None, seed]),
        overlap=chance.random() < 0.3,
    )
    world = World(root, chance, described)
    for _ in range(STEPS):
        world.step()
    world.finish()
    world.master_side.close()
    return world


@pytest.mark.parametrize("batch", range(8))
@pytest.mark.parametrize(
    "part",
    [
        pytest.param(slice(FEW), id="few"),
        pytest.param(slice(FEW, SCHEDULES), id="more", marks=pytest.mark.soak),
    ],
)
def test_nothing_is_lost_and_nothing_is_accepted_twice(
    batch: int, part: slice, tmp_path: Path, *, thorough: bool
) -> None:
    """Kills, restarts, takeovers, lost, late and repeated calls, full disks."""
    schedules = THOROUGH if thorough else SCHEDULES
    seeds = range(batch * schedules, (batch + 1) * schedules)
    for seed in seeds if thorough else seeds[part]:
        world = _play(tmp_path / str(seed), seed)
        ledger = world.master_side.ledger
        data = ledger.datasets["train"]
        records = data.partitioning.records or 0

        assert data.totals.records == records * data.epochs, seed
        assert data.totals.tasks == (data.partitioning.count or 0) * data.epochs, seed
        assert data.totals.dropped_tasks == 0, seed
        again = sum(count - 1 for count in world.accepted_counts.values() if count > 1)
        assert again <= ledger.trained_again_records + world.taken_over * records, seed
        if not world.taken_over:
            assert again == 0, seed
            assert ledger.trained_again_records == 0, seed
        shutil.rmtree(tmp_path / str(seed))
