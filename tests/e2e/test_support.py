"""The table of supported versions in docs/install.md: it is of the versions that are pinned, and all are shown."""

from pathlib import Path

import pytest
import yaml

from admin.before import OLDEST
from e2e import support
from e2e.cluster.toolchain import KUBERNETES, recipe

SHOWN = {minor: {"burst": True, "life": True} for minor in KUBERNETES}
CHART = Path(support.PAGE).parents[1] / "deploy" / "chart" / "Chart.yaml"


def test_the_table_is_of_the_versions_that_are_pinned() -> None:
    """Where this fails: `make matrix`, and see what it says of the new version. None has failed."""
    page = support.PAGE.read_text("utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| 1.")]
    tried = {minor: SHOWN[minor] for minor, row in zip(SHOWN, rows, strict=True) if "shown" in row}

    assert support.written(page, tried) == page
    assert "1.36" in tried


def test_the_oldest_version_is_the_one_that_check_and_chart_demand() -> None:
    """Nobody is refused what is supported, or let in where nothing was tried."""
    oldest = min(tuple(map(int, minor.split("."))) for minor in KUBERNETES)

    assert oldest == OLDEST
    assert yaml.safe_load(CHART.read_text())["kubeVersion"] == f">={oldest[0]}.{oldest[1]}.0-0"


def test_what_failed_is_written_as_such() -> None:
    """And what was not run."""
    text = support.table({**SHOWN, "1.37": {"burst": True}})
    assert "| not run | not run |" in support.table({})
    (row,) = (line for line in text.splitlines() if line.startswith("| 1.37."))

    assert row == (
        f"| {recipe(KUBERNETES['1.37']).kubernetes.removeprefix('v')} | shown | failed | not run |"
    )
    assert "failed" not in support.table(SHOWN)


def test_a_page_without_a_place_for_it_is_refused() -> None:
    """Rather than written to somewhere else."""
    with pytest.raises(support.SupportError, match="two lines"):
        support.written("# Install\n", SHOWN)


def test_the_command_writes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the last run's results; without them it says what to do."""
    monkeypatch.setattr(support, "RESULTS", tmp_path / "matrix.json")
    output = tmp_path / "install.md"
    missing = support.main(["--output", str(output)])
    (tmp_path / "matrix.json").write_text('{"1.36": {"burst": true, "life": true}}')
    done = support.main(["--output", str(output)])

    assert (missing, done) == (1, 0)
    assert "run `make matrix` first" in capsys.readouterr().err
    assert output.read_text().count("| not run | not run |") == len(KUBERNETES) - 1
