"""Facts about the rounds of NCCL cells, played over gloo on CPU; run with the torch of `make torch`."""

import tempfile
from pathlib import Path
from typing import Any

import torch.distributed as dist

from e2e.gpu.cell import CellError, Run
from e2e.gpu.nccl.playing import play_parts
from e2e.gpu.nccl.rounds import Part

FAULTY = "tests.e2e.gpu.faulty_rank"
TIMES = ("form_first_s", "abort_s", "form_again_s", "news_to_sum_s", "form_join_s", "sum_join_s")


def ranks_survive_a_loss_and_take_a_new_one_in(folder: Path) -> None:
    """Two of three ranks go on after a kill and a freeze; sums are right in every group."""
    run = Run("cpu", folder)
    parts = [Part("gloo", 3, "kill"), Part("gloo", 3, "freeze"), Part("gloo", 2)]
    play_parts(run, parts, limit_s=240, part_s=60)
    for fault in ("kill", "freeze"):
        figures = {name: run.figures[f"gloo_3_{fault}_{name}"] for name in TIMES}
        assert all(isinstance(figure, float) for figure in figures.values()), figures
    during: Any = run.figures["gloo_2_overlap_sums_during"]
    assert during >= 1
    assert len(list(folder.glob("*.json"))) == 4 + 4 + 2 + 1  # a report for each rank, the figures


def failures_are_told_with_their_causes(folder: Path) -> None:
    """Wrong sums, ranks that die and ranks that hang fail the cell, with step and place."""
    run = Run("cpu", folder)
    parts = [Part(way, 1, program=FAULTY) for way in ("wrong", "dying", "hanging", "late")]
    try:
        play_parts(run, parts, limit_s=240, part_s=4)
    except CellError as error:
        wrong, dying, hanging = str(error).split(" | ")  # no part after one that forms no group
    else:
        raise AssertionError("the cell did not fail")
    assert "SumError: the sum of ranks [0] is wrong in 1 of 1048576 elements" in wrong, wrong
    assert "rank 0 failed at sums before: it ended by itself with exit code 7" in dying, dying
    assert (
        "no group of 1 ranks formed on one device (init.cc:3 NCCL WARN group 1 of 1" in hanging
    ), hanging
    assert "rank 0 hung at form_first, in faulty_rank.py:" in hanging, hanging
    log = (folder / "hanging_1_overlap-0.log").read_text("utf-8")
    assert "Fatal Python error: Aborted" in log
    assert "in form" in log


def torch_has_the_names(folder: Path) -> None:
    """Torch has the functions that the NCCL ways call, even without a card."""
    del folder
    options = dist.ProcessGroupNCCL.Options()
    options.config.blocking = 0
    assert options.config.blocking == 0
    for name in ("allreduce", "abort"):
        assert callable(getattr(dist.ProcessGroupNCCL, name)), name


def nothing_is_left(folder: Path) -> None:
    """No process of the facts before still runs, and no core or other file lies in the folder."""
    children = Path("/proc/thread-self/children").read_text("utf-8").split()
    assert not children, children
    left = {path.suffix for path in folder.iterdir() if path.is_file()}
    assert left <= {".json", ".log", ""}, left


def main() -> None:
    """Checks all facts."""
    with tempfile.TemporaryDirectory() as name:
        for fact in (
            torch_has_the_names,
            ranks_survive_a_loss_and_take_a_new_one_in,
            failures_are_told_with_their_causes,
            nothing_is_left,
        ):
            folder = Path(name) / fact.__name__
            folder.mkdir()
            fact(folder)
            print(fact.__name__, flush=True)  # noqa: T201 - read in the test's output


if __name__ == "__main__":
    main()
