"""The benchmarks of synchronous training, as short as they can be."""

from pathlib import Path

import numpy as np
import pytest

from bench import picture, rounds, steps, wide
from bench.benchmark import Setting
from tests.sdk.sync.curves import Curve, differ

SMALL = Setting((10,), 1, lambda _: None)


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_a_change_of_members_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member of rank 0 is killed and replaced, with real processes."""
    monkeypatch.setattr(rounds, "LOSSES", ["kill"])
    monkeypatch.setattr(rounds, "RANKS", (0,))
    result = rounds.run(SMALL)

    assert [criterion.name for criterion in result.criteria] == ["change_kill_s", "change_grow_s"]
    assert all(criterion.value for criterion in result.criteria)
    numpy = result.raw["numpy_2"]
    assert (len(numpy["kill"]["rank_0_s"]), numpy["kill"]["others_s"]) == (1, [])
    assert len(numpy["grow"]["others_s"]) == 1


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_changes_of_members_report_the_issues_bar() -> None:
    """Every kind of change, with real processes, to the member of rank 0 and to another one."""
    result = rounds.run(SMALL)

    limits = {criterion.name: criterion.limit for criterion in result.criteria}
    assert limits == dict.fromkeys(
        ("change_term_s", "change_kill_s", "change_stop_s", "change_grow_s"), 3.0
    )
    assert all(criterion.value for criterion in result.criteria)
    numpy = result.raw["numpy_2"]
    assert len(numpy["kill"]["rank_0_s"]) == len(numpy["kill"]["others_s"]) == 1
    assert len(numpy["grow"]["others_s"]) == 6


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_steps_report_their_speed_and_their_exchange() -> None:
    """With one, two and four processes, and with plain PaddlePaddle if it is installed."""
    result = steps.run(SMALL)
    criteria = {criterion.name: criterion for criterion in result.criteria}

    assert criteria["sync_step_speed_over_plain"].limit == 0.95
    assert criteria["sync_speed_2_over_1"].value
    assert 0 < (criteria["sync_exchange_share_4"].value or 0) < 1
    assert result.raw["scaling"]["1"][0]["exchange_share"] < 0.2


def test_a_picture_shows_both_curves(tmp_path: Path) -> None:
    """The plot works even for equal curves."""
    fixed = Curve([2.0, 1.0, 0.5], [4, 4, 4], 0.9)
    path = tmp_path / "pictures" / "curves.png"
    picture.curves(path, "numpy", fixed, Curve([2.0, 1.0, 0.5], [4, 3, 4], 0.9), batch=32)

    assert path.read_bytes().startswith(b"\x89PNG")


def test_curves_differ_by_their_worst_step() -> None:
    """Relative to that step's own loss."""
    difference = differ(Curve([2.0, 1.0], [1, 1], 0.9), Curve([2.0, 0.8], [1, 2], 0.88))

    assert difference.relative == pytest.approx(0.2)
    assert difference.absolute == pytest.approx(0.2)
    assert difference.accuracy == pytest.approx(0.02)


def test_the_wide_model_descends_along_its_gradient(tmp_path: Path) -> None:
    """A step along the gradient decreases the loss."""
    path = tmp_path / "wide.npz"
    wide.write(str(path), 64)
    with np.load(path) as arrays:
        inputs, labels = arrays["inputs"], arrays["labels"]
    network = wide.model()
    before, slope = wide.loss(network.forward(inputs), labels)
    rate = wide.optimizer(network.parameters)["learning_rate"]
    for name, gradient in network.gradients(slope).items():
        network.parameters[name] -= 10 * rate * gradient
    after, _ = wide.loss(network.forward(inputs), labels)

    assert after < before
