"""What trainers of the commands do beside training: evaluations, and what they say."""

import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import edl
import pytest
from edl import Session
from edl.jobs import progress_lines, training_flags
from edl.jobs.evaluator import Evaluator

from master import status
from tests.master.serving import TOKEN, Served

Join = Callable[..., Session]
DATA = edl.from_function("evaluation", int, 40)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Served]:
    """A real master in a thread."""
    process = Served(tmp_path / "journal")
    yield process
    process.stop()


@pytest.fixture
def join(master: Served) -> Iterator[Join]:
    """Makes sessions with it, and ends them after the test."""
    sessions: list[Session] = []

    def make(trainer: str = "trainer-0", patience_s: float = 20.0) -> Session:
        url = f"http://127.0.0.1:{master.port}"
        sessions.append(Session(edl.Settings(url, TOKEN, trainer, patience_s=patience_s)))
        return sessions[-1]

    yield make
    for member in sessions:
        member.leave()


def _accuracy(records: list[int]) -> dict[str, float]:
    return {"accuracy": sum(number < 10 for number in records) / len(records)}


def test_trainers_share_an_evaluation(join: Join, master: Served) -> None:
    """One asks; all see the means over all records, and each record was evaluated once."""
    seen_records: list[int] = []
    results: list[dict[str, float]] = []

    def evaluate(records: list[int]) -> dict[str, float]:
        seen_records.extend(records)
        return _accuracy(records)

    def take_part(evaluator: Evaluator, *, asks: bool) -> None:
        results.append(evaluator.run(7, evaluate, asks=asks))

    both = [Evaluator(DATA, 4, join(f"trainer-{number}")) for number in range(2)]
    threads = [
        threading.Thread(target=take_part, args=(evaluator,), kwargs={"asks": evaluator is both[0]})
        for evaluator in both
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert results == [{"accuracy": 0.25}] * 2
    assert sorted(seen_records) == list(range(40))
    assert [evaluator.newest for evaluator in both] == [(7, {"accuracy": 0.25})] * 2
    assert len(status.evaluation(master.service.ledger, 7)["rounds"]) == 1


def test_who_hears_of_no_evaluation_asks_for_one(join: Join) -> None:
    """The one who was to ask is gone; those that are known are not asked for again."""
    evaluator = Evaluator(DATA, 4, join())

    assert evaluator.run(3, _accuracy, asks=False) == {"accuracy": 0.25}
    assert evaluator.run(3, _accuracy, asks=True) == {"accuracy": 0.25}


def test_an_evaluation_whose_model_is_gone_does_not_count(join: Join) -> None:
    """It can be requested again, and another version's tasks are finished without a result."""
    member = join()
    evaluator = Evaluator(DATA, 4, member)
    assert evaluator.run(3, lambda _: None, asks=True) == {}
    assert evaluator.newest is None
    assert evaluator.counted_round(3) is None
    edl.ask_evaluation(DATA, 4, member=member)

    assert evaluator.run(3, _accuracy, asks=True) == {"accuracy": 0.25}
    assert evaluator.counted_round(4) is None


def test_an_evaluation_waits_for_a_master_that_is_away(
    join: Join, master: Served, tmp_path: Path
) -> None:
    """As training does."""
    evaluator = Evaluator(DATA, 4, join())
    master.kill()
    again = threading.Timer(
        0.3, lambda: back.append(Served(tmp_path / "journal", port=master.port))
    )
    back: list[Served] = []
    again.start()

    assert evaluator.run(1, _accuracy, asks=True) == {"accuracy": 0.25}
    again.join()
    back[0].kill()


def test_a_master_that_stays_away_ends_it(join: Join, master: Served) -> None:
    """After the trainer's patience."""
    evaluator = Evaluator(DATA, 4, join(patience_s=0.2))
    master.kill()

    with pytest.raises(edl.Unavailable):
        evaluator.run(1, _accuracy, asks=True)


def test_sigterm_while_the_master_is_away_is_no_failure_of_an_evaluation(
    join: Join, master: Served
) -> None:
    """The trainer leaves as after any other SIGTERM, and its pod does not count as failed."""
    member = join()
    evaluator = Evaluator(DATA, 4, member)
    master.kill()
    member.exits = True
    member.stop("SIGTERM")

    with pytest.raises(SystemExit) as left:
        evaluator.run(1, _accuracy, asks=True)
    assert left.value.code == 143


def test_lines_become_rarer_as_a_job_grows_old() -> None:
    """One a second at first, and every twentieth part of the time later."""
    now_s = 0.0
    interval, lines = progress_lines.ReportInterval(lambda: now_s), []
    for _ in range(16_000):
        speed = interval.note(50, 0.0125)
        if speed is not None:
            lines.append((now_s, speed))
        now_s += 0.125

    assert lines[:2] == [
        (0.0, ""),
        (1.0, "400 records/s, 10% of the time in exchange"),
    ]
    assert 60 < len(lines) < 150
    assert progress_lines.format_speed(10, 2.0, 0.0) == "5 records/s"


def test_numbers_are_told_with_the_loss_first(capsys: pytest.CaptureFixture[str]) -> None:
    """And what is empty is left out."""
    progress_lines.print_line(
        "step 3", progress_lines.format_metrics({"accuracy": 0.98765, "loss": 0.1}), "", "done"
    )

    assert capsys.readouterr().out == "step 3: loss 0.1, accuracy 0.9877; done\n"
    assert progress_lines.format_metrics({}) == "no metrics"
    assert (progress_lines.format_count(1, "step"), progress_lines.format_count(0, "step")) == (
        "1 step",
        "0 steps",
    )


def _asked(**changes: Any) -> Namespace:
    settings = {"batch_size": 64, "micro_batches": None, "evaluate_every": "epoch"}
    settings |= {"checkpoints": None, "checkpoint_every": None, "asynchronous": False}
    return Namespace(**{**settings, **changes})


def test_defaults_that_depend_on_others() -> None:
    """Parts of a step, steps between evaluations and between checkpoints."""
    files = {"files": [{"name": "a", "records": 100}, {"name": "b", "records": 29}]}

    assert training_flags.micro_batches(_asked()) == 8
    assert training_flags.micro_batches(_asked(), 12) == 12
    assert training_flags.micro_batches(_asked(batch_size=4)) == 4
    assert training_flags.micro_batches(_asked(micro_batches=2), 12) == 2
    assert training_flags.evaluation_steps(_asked(), files) == 3
    assert training_flags.evaluation_steps(_asked(), {"records": 128}) == 2
    assert training_flags.evaluation_steps(_asked(), {"stream": True}) == 0
    assert training_flags.evaluation_steps(_asked(evaluate_every=5), files) == 5
    assert training_flags.checkpoint_steps(_asked()) == 0
    assert training_flags.checkpoint_steps(_asked(checkpoints="a")) == 100
    assert training_flags.checkpoint_steps(_asked(asynchronous=True, checkpoint_every=7)) == 7
