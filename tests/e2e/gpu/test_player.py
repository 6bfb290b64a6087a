"""`make gpu` runs every cell, whatever the cells before it did, and keeps its result."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from e2e.gpu import __main__ as command
from e2e.gpu import report, wheels
from e2e.gpu.card import CardError, checked
from e2e.gpu.catalogue import CELLS, Cell, UnknownCellError, choose
from e2e.gpu.player import Outcome, play, play_all

ENVIRON = {**os.environ, "PYTHONFAULTHANDLER": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
FOUND = {"torch": "2.11.0", "cuda": "13.0", "nccl": "2.28.9", "card": "H100"}


def odd(name: str, folder: Path, limit_s: float = 60.0) -> Outcome:
    """The outcome of one of `odd_cells`."""
    place = folder / name
    place.mkdir()
    cell = Cell(name, "", f"tests.e2e.gpu.odd_cells:{name}", limit_s)
    return play(cell, "cpu", place, ENVIRON, limit_s)


def is_running(pid: object) -> bool:
    """Whether a process is there and no zombie."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_cell_that_holds_has_its_figures(tmp_path: Path) -> None:
    """The cell gets the device; its log is not in the report."""
    outcome = odd("well", tmp_path)
    assert (outcome.state, outcome.problem, outcome.log) == ("passed", "", "")
    assert outcome.figures == {"device": "cpu", "answer": 42}


def test_a_check_that_fails_is_said_in_its_words(tmp_path: Path) -> None:
    """The outcome keeps the figures recorded before the check."""
    outcome = odd("wrong", tmp_path)
    assert (outcome.state, outcome.figures) == ("failed", {"ratio": 1.5})
    assert outcome.problem == "the ratio is 1.5, and the bar is 1.0"


def test_a_crash_is_a_result(tmp_path: Path) -> None:
    """The outcome names the signal, and the log has the stacks."""
    outcome = odd("crash", tmp_path)
    assert (outcome.state, outcome.problem) == ("failed", "crashed with SIGABRT")
    assert "in crash" in outcome.log


def test_a_cell_that_hangs_is_ended_with_all_it_has_started(tmp_path: Path) -> None:
    """The outcome keeps its stacks and figures."""
    outcome = odd("hang", tmp_path, limit_s=2.0)
    assert (outcome.state, outcome.problem) == ("hung", "hung: ended after 2 s")
    assert "Fatal Python error: Aborted" in outcome.log
    assert "odd_cells.py" in outcome.log
    assert outcome.figures["begun"] is True
    assert not is_running(outcome.figures["pid"])


def test_a_process_that_is_left_behind_fails_its_cell(tmp_path: Path) -> None:
    """The process is ended, although it has a session of its own."""
    outcome = odd("untidy", tmp_path)
    assert (outcome.state, outcome.problem) == ("failed", "left 1 process behind")
    assert not is_running(outcome.figures["pid"])


def test_cells_without_time_or_card_are_left_out(tmp_path: Path) -> None:
    """The other cells run, and each is reported as soon as it ends."""
    place = "tests.e2e.gpu.odd_cells:well"
    cells = [Cell("cuda", "", place, 60, needs_cuda=True), Cell("well", "", place, 60)]
    rows: list[str] = []
    outcomes = play_all(
        cells,
        "cpu",
        tmp_path,
        ENVIRON,
        seconds=60.0,
        on_end=lambda outcome: rows.append(outcome.cell),
    )
    assert [outcome.state for outcome in outcomes] == ["left out", "passed"]
    assert rows == ["cuda", "well"]
    (cut,) = play_all(
        [Cell("hang", "", "tests.e2e.gpu.odd_cells:hang", 60)],
        "cpu",
        tmp_path / "cut",
        ENVIRON,
        seconds=10.5,
        on_end=lambda _: None,
    )
    assert (cut.state, cut.problem) == ("left out", "ended after 10 of its 60 s")
    (late,) = play_all(
        cells[1:], "cpu", tmp_path / "late", ENVIRON, seconds=5.0, on_end=lambda _: None
    )
    assert (late.state, late.problem) == ("left out", "no time left of 5 s")


def test_a_cell_that_cannot_run_here_is_left_out(tmp_path: Path) -> None:
    """The outcome has the reason."""
    outcome = odd("elsewhere", tmp_path)
    assert (outcome.state, outcome.problem) == ("left out", "jax is not installed")


def test_nothing_is_left_when_the_player_is_ended(tmp_path: Path) -> None:
    """SIGTERM, which `timeout` sends, ends the cell and its child."""
    program = (
        "import os, pathlib, signal, sys; from e2e.gpu import __main__, catalogue, player;"
        "__main__.end_by_signals();"
        "cell = catalogue.Cell('hang', '', 'tests.e2e.gpu.odd_cells:hang', 60);"
        "player.play(cell, 'cpu', pathlib.Path(sys.argv[1]), os.environ, 60)"
    )
    with subprocess.Popen(  # noqa: S603 - fixed words
        [sys.executable, "-c", program, tmp_path], env=ENVIRON, stderr=subprocess.DEVNULL
    ) as player:
        figures = tmp_path / "figures.json"
        wait = threading.Event()
        while not (figures.exists() and "pid" in figures.read_text("utf-8")):
            assert not wait.wait(0.02)
        player.terminate()
    figures_by_name = json.loads(figures.read_text("utf-8"))
    assert not is_running(figures_by_name["child"])
    assert not is_running(figures_by_name["pid"])


def test_cells_are_chosen_by_name() -> None:
    """Chosen cells keep the order of the catalogue; a misspelt name gets a suggestion."""
    assert choose([]) == CELLS
    assert choose(["", " "]) == CELLS
    assert [cell.name for cell in choose(["step", " facts"])] == ["facts", "step"]
    with pytest.raises(UnknownCellError, match=r"called digit \(did you mean digits\?\)"):
        choose(["digit"])


def test_a_machine_without_a_card_says_what_it_would_play(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line lists the cells, and the command succeeds."""
    if Path("/dev/nvidia0").exists():
        pytest.skip("there is a card")
    assert command.main(["--cells", "step,digits"]) == 0
    assert capsys.readouterr().out == (
        "no NVIDIA GPU on this machine; with one, make gpu would run digits, step\n"
    )


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            {"problem": "torch 2.15.0 was built without CUDA: call make gpu PYTHON=..."},
            "torch 2.15.0 was built without CUDA: call make gpu PYTHON=",
        ),
        (
            {**FOUND, "free_gb": 3.0, "total_gb": 85.0},
            r"H100 has 3.0 of 85.0 GB free, and the cells need 16: end the programs",
        ),
    ],
)
def test_a_card_that_cannot_be_used_is_named(found: dict[str, object], message: str) -> None:
    """A torch without CUDA and a busy card each get one line."""
    with pytest.raises(CardError, match=message) as error:
        checked(found, "580.1")
    assert "\n" not in str(error.value)


def test_a_card_that_can_be_used_is_described() -> None:
    """The description has the versions that figures depend on."""
    card = checked({**FOUND, "free_gb": 80.0, "total_gb": 85.0}, "580.1")
    assert (card.name, card.driver, card.torch, card.nccl) == ("H100", "580.1", "2.11.0", "2.28.9")


def test_a_missing_package_is_named_with_the_way_out() -> None:
    """The message says how to get the package."""
    wheels.check_complete([])
    with pytest.raises(wheels.WheelError, match="orjson cannot be imported: call make gpu-wheels"):
        wheels.check_complete(["orjson"])


def test_wheels_that_do_not_fit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has one line, with the command that downloads the right wheels."""
    (tmp_path / "orjson-3.13.0-cp27-none-any.whl").write_bytes(b"")
    monkeypatch.setattr(wheels, "FOLDER", tmp_path)
    with pytest.raises(wheels.WheelError, match="make gpu-wheels FOR=") as error:
        wheels.install(tmp_path / "site")
    assert "\n" not in str(error.value)


def test_the_table_fits_the_terminal(tmp_path: Path) -> None:
    """The report has every figure that the table cuts off."""
    figures = {f"figure_{number}_s": number / 7 for number in range(20)}
    outcome = Outcome("digits", "passed", 41.25, figures=figures)
    line = report.row(outcome, 12, 70)
    assert line.startswith("digits        passed      41.2  figure_0_s 0  figure_1_s 0.1429")
    assert len(line) == 70
    report.write(tmp_path / "report.json", {"name": "H100", "commit": "abc"}, [outcome])
    written = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert (written["name"], written["commit"]) == ("H100", "abc")
    assert written["cells"][0]["figures"] == figures


def test_the_commit_comes_along_where_the_history_does_not(tmp_path: Path) -> None:
    """The wheels' file gives the commit; without it, the commit is `unknown`."""
    carried = tmp_path / "commit.txt"
    assert report.commit_of(tmp_path, carried) == "unknown"
    carried.write_text("5505e0897d12\n", encoding="utf-8")
    assert report.commit_of(tmp_path, carried) == "5505e0897d12"
