"""Every record is acknowledged exactly once per epoch, whatever goes wrong and when."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.master.schedules import Faults, World

FEW, MANY = 40, 2_000
"""Schedules of each kind: in every run, and in `make properties`."""
KINDS = {
    "restarts": Faults(restarts=0.06),
    "full disks": Faults(full_disks=0.3),
    "takeovers": Faults(restarts=0.02, takeovers=0.03, deaths=0.0),
    "everything": Faults(takeovers=0.02, full_disks=0.1),
}


@pytest.fixture(name="home")
def _home() -> Iterator[Path]:
    """A directory in memory where there is one: thousands of journals are synced here."""
    memory = Path("/dev/shm")  # noqa: S108 - a private directory is made in it
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as found:
        yield Path(found)


@pytest.mark.parametrize("kind", KINDS)
def test_every_record_is_acknowledged_once_per_epoch(kind: str, home: Path, thorough: bool) -> None:
    """And a task only ever counts again where nobody alive could have told of it."""
    for seed in range(MANY if thorough else FEW):
        world = World(home / str(seed), seed, KINDS[kind])
        try:
            world.run()
            world.check()
        except Exception as error:
            raise AssertionError(f"{kind}, seed {seed}") from error
        finally:
            world.close()
