"""The benchmarks of synchronous training, as short as they can be."""

from pathlib import Path

import numpy as np
import pytest

from bench import picture, rounds, steps, wide
from bench.benchmark import Setting
from tests.sdk.sync.curves import Curve, differ

SMALL = Setting((10,), 1, lambda _: None)


@pytest.mark.timeout(180)
def test_a_change_of_members_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member of rank 0 is killed and replaced, with real processes."""
    monkeypatch.setattr(rounds, "LOSSES", ["kill"])
    monkeypatch.setattr(rounds, "RANKS", (0,))
    found = rounds.run(SMALL)

    assert [bar.name for bar in found.bars] == ["change_kill_s", "change_grow_s"]
    assert all(bar.value for bar in found.bars)
    numpy = found.raw["numpy_2"]
    assert (len(numpy["kill"]["rank_0_s"]), numpy["kill"]["others_s"]) == (1, [])
    assert len(numpy["grow"]["others_s"]) == 1


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_changes_of_members_report_the_issues_bar() -> None:
    """Every kind of change, with real processes, to the member of rank 0 and to another one."""
    found = rounds.run(SMALL)

    limits = {bar.name: bar.limit for bar in found.bars}
    assert limits == dict.fromkeys(
        ("change_term_s", "change_kill_s", "change_stop_s", "change_grow_s"), 3.0
    )
    assert all(bar.value for bar in found.bars)
    numpy = found.raw["numpy_2"]
    assert len(numpy["kill"]["rank_0_s"]) == len(numpy["kill"]["others_s"]) == 1
    assert len(numpy["grow"]["others_s"]) == 6


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_steps_report_their_speed_and_their_exchange() -> None:
    """One, two and four processes; beside plain PaddlePaddle where that is installed."""
    found = steps.run(SMALL)
    bars = {bar.name: bar for bar in found.bars}

    assert bars["sync_step_speed_over_plain"].limit == 0.95
    assert bars["sync_speed_2_over_1"].value
    assert 0 < (bars["sync_exchange_share_4"].value or 0) < 1
    assert found.raw["scaling"]["1"][0]["exchange_share"] < 0.2


def test_a_picture_shows_both_curves(tmp_path: Path) -> None:
    """Even where they do not differ at all."""
    one = Curve([2.0, 1.0, 0.5], [4, 4, 4], 0.9)
    path = tmp_path / "pictures" / "curves.png"
    picture.curves(path, "numpy", one, Curve([2.0, 1.0, 0.5], [4, 3, 4], 0.9), batch=32)

    assert path.read_bytes().startswith(b"\x89PNG")


def test_curves_differ_by_their_worst_step() -> None:
    """Relative to that step's own loss."""
    found = differ(Curve([2.0, 1.0], [1, 1], 0.9), Curve([2.0, 0.8], [1, 2], 0.88))

    assert found.relative == pytest.approx(0.2)
    assert found.absolute == pytest.approx(0.2)
    assert found.accuracy == pytest.approx(0.02)


def test_the_wide_model_descends_along_its_gradient(tmp_path: Path) -> None:
    """Its steps are real work, and right."""
    path = tmp_path / "wide.npz"
    wide.write(str(path), 64)
    with np.load(path) as found:
        inputs, labels = found["inputs"], found["labels"]
    network = wide.model()
    before, slope = wide.loss(network.forward(inputs), labels)
    rate = wide.optimizer(network.parameters)["learning_rate"]
    for name, one in network.gradients(slope).items():
        network.parameters[name] -= 10 * rate * one
    after, _ = wide.loss(network.forward(inputs), labels)

    assert after < before
