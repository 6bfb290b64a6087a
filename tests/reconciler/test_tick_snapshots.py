"""What each plan was made of, as files: planned again they give the plan of the reconciler."""

from pathlib import Path

import pytest

from policy.planning import snapshot_file
from policy.planning.snapshot_file import comparable
from reconciler.settings import ReconcilerSettings
from tests.reconciler.world import Process, World


def test_plans_on_the_snapshots_are_those_of_the_ticks(world: World, tmp_path: Path) -> None:
    """While jobs start, grow, share and give way to services; the newest files are kept."""
    folder = tmp_path / "not" / "there" / "yet"
    settings = ReconcilerSettings(snapshot_folder=folder, snapshots_kept=6)
    process = Process(world, settings=settings)
    decided = []
    for number in range(8):
        if number in (0, 2):
            world.add_job(f"net-{number}", 2, 10)
        if number == 5:
            world.add_services(3)
        plan = process.round()
        assert plan is not None
        decided.append(comparable(plan))
        world.step()
    process.stop()

    order = [6, 7, 2, 3, 4, 5]  # by name: the newest have replaced the oldest
    files = [snapshot_file.loads(path.read_bytes()) for path in sorted(folder.iterdir())]
    assert [file.decided for file in files] == [decided[number] for number in order]
    assert [comparable(file.input.plan()) for file in files] == [file.decided for file in files]
    assert any(plan.releases for plan in decided)


def test_a_folder_that_cannot_be_written_costs_no_tick(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged."""
    (tmp_path / "file").write_text("")
    settings = ReconcilerSettings(snapshot_folder=tmp_path / "file" / "folder")
    process = Process(world, settings=settings)
    world.add_job("net", 2, 4)
    process.run(3)
    process.stop()
    assert len(world.running("net")) == 4
    assert "could not write snapshot" in caplog.text
