"""Every record is acknowledged exactly once per epoch, whatever goes wrong and when."""

import shutil
from pathlib import Path

import pytest

from tests.master.schedules import Faults, World

FEW, SOAK, MANY = 10, 40, 2_000
"""Schedules of each kind: in every run, up to where in `make soak`, and in `make properties`."""
KINDS = {
    "restarts": Faults(restarts=0.06),
    "full disks": Faults(full_disks=0.3),
    "takeovers": Faults(restarts=0.02, takeovers=0.03, deaths=0.0),
    "everything": Faults(takeovers=0.02, full_disks=0.1),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(FEW), id="few"),
        pytest.param(range(FEW, SOAK), id="more", marks=pytest.mark.soak),
    ],
)
def test_every_record_is_acknowledged_once_per_epoch_in_all_schedules(
    kind: str, seeds: range, tmp_path: Path, thorough: bool
) -> None:
    """A task counts again only where no live process could have reported it."""
    for seed in range(MANY) if thorough else seeds:
        home = tmp_path / str(seed)
        world = World(home, seed, KINDS[kind])
        try:
            world.run()
            world.check()
        except Exception as error:
            raise AssertionError(f"{kind}, seed {seed}") from error
        finally:
            world.close()
        shutil.rmtree(home)
