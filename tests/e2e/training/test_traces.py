import json
from pathlib import Path

import pytest

from e2e.training import traces
from e2e.training.traces import SIGTERM_EXIT


def _write(folder: Path, name: str, *notes: dict[str, object]) -> None:
    text = "".join(json.dumps(note) + "\n" for note in notes)
    (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def _step(at_s: float, number: int, loss: float, **fields: object) -> dict[str, object]:
    return {"at_s": at_s, "what": "step", "step": number, "loss": loss, "records": 8, **fields}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two members, one of which left after its first step; and what they printed."""
    _write(
        tmp_path,
        "trainer-0",
        {"at_s": 1.0, "what": "start", "pid": 7},
        _step(2.0, 1, 0.5, rank=0, world_size=2),
        _step(4.5, 2, 0.25, rank=0, world_size=1),
    )
    _write(
        tmp_path,
        "trainer-1",
        {"at_s": 1.5, "what": "start", "pid": 8},
        _step(2.1, 1, 0.5, rank=1, world_size=2),
        {"at_s": 2.5, "what": "sigterm"},
        {"at_s": 2.75, "what": "end", "code": SIGTERM_EXIT},
    )
    (tmp_path / "trainer-1.log").write_text("hello\nedl: it broke\n", encoding="utf-8")
    return tmp_path


def test_traces_are_read_back(folder: Path) -> None:
    """One for each trainer, with its process, its steps, its end."""
    stays, leaves = traces.read(folder)

    assert (stays.pids, stays.sigterm_s, stays.stop_s, stays.code) == ((7,), None, None, None)
    assert (leaves.pids, leaves.stop_s, leaves.code) == ((8,), 0.25, SIGTERM_EXIT)
    assert [(step.number, step.rank, step.world_size) for step in stays.steps] == [
        (1, 0, 2),
        (2, 0, 1),
    ]


def test_a_batch_of_a_loop_is_a_step_without_a_loss(folder: Path) -> None:
    """Its number counts the batches of one trainer."""
    note = {"at_s": 3.0, "what": "step", "step": 1, "records": 5}
    _write(folder, "trainer-2", {"at_s": 2.5, "what": "start", "pid": 9}, note)

    (step,) = traces.read(folder)[-1].steps
    assert (step.number, step.records, step.loss, step.world_size) == (1, 5, 0, 0)


def test_who_was_told_to_leave_in_a_span_is_found(folder: Path) -> None:
    """Whoever never was is in no span."""
    both = traces.read(folder)

    assert traces.stopped_between(both, (2.0, 3.0)) == both[1:]
    assert traces.stopped_between(both, (3.0, 9.0)) == []


def test_the_accuracy_is_the_one_that_was_printed(folder: Path) -> None:
    """By whichever trainer led."""
    line = "model is trained: 9 steps; evaluation of step 9: loss 1.2e-03, accuracy 0.975; over\n"
    (folder / "trainer-0.log").write_text(line, encoding="utf-8")

    assert traces.evaluated_accuracy(folder) == 0.975


def test_only_those_who_go_on_are_at_work(folder: Path) -> None:
    """Who was told to leave is not among them."""
    assert traces.working(folder) == 1


def test_whoever_fails_is_told_with_the_last_words(folder: Path) -> None:
    """Otherwise a test would wait for minutes without naming the reason."""
    _write(folder, "trainer-1", {"at_s": 1.0, "what": "end", "code": 1})

    with pytest.raises(AssertionError, match="trainer-1 ended with 1: edl: it broke"):
        traces.working(folder)


def test_steps_made_together_count_once(folder: Path) -> None:
    """As the first member saw them."""
    steps = traces.group_steps(traces.read(folder))

    assert [(step.number, step.at_s) for step in steps] == [(1, 2.0), (2, 4.5)]
    assert traces.longest_pause_s(steps, 0.0, 9.0) == 2.5
    assert traces.means(steps, 2) == [0.5, 0.25]


def test_members_that_disagree_about_a_loss_are_found(folder: Path) -> None:
    """In synchronous training all see the same."""
    assert traces.disagreements(traces.read(folder)) == []

    _write(folder, "trainer-2", _step(2.2, 1, 0.6))

    assert traces.disagreements(traces.read(folder)) == [1]


def test_a_span_without_steps_is_a_pause_without_end(folder: Path) -> None:
    """So that no limit is met without training."""
    assert traces.longest_pause_s(traces.all_steps(traces.read(folder)), 5.0, 9.0) == float("inf")


def test_a_file_that_is_being_written_counts_as_far_as_its_lines_are_whole(tmp_path: Path) -> None:
    """The reader comes at any moment: right after the file was created, or in the midst of a line."""
    (tmp_path / "trainer-0.jsonl").write_text("")
    (tmp_path / "trainer-1.jsonl").write_text('{"what": "start", "at_s": 1.0, "pid": 7}\n{"wha')

    assert [(trace.name, trace.pids) for trace in traces.read(tmp_path)] == [("trainer-1", (7,))]
