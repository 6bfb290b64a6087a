"""Cases of the tests of ElasticDL's and PaddlePaddle's task masters that no other file here has.

docs/training.md has a table of all such cases, with the test or the choice that answers each.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from master.ledger import Ledger
from master.partitioning import Partitioning
from runtime.call_checks import Json
from tests.master.ledger_calls import done, end_pauses, opened, ref, work

ROOT = Path(__file__).parents[2]
_TABLE = "## The task master compared with others"
_TEST = re.compile(r"`([a-z_/]+)::(\w+)`")


def _files(*sizes: int) -> dict[str, object]:
    names = [{"name": f"shard-{i}", "records": size} for i, size in enumerate(sizes)]
    return {"records": None, "files": names, "task_records": 3}


def _train_all(ledger: Ledger, *names: str, fails: str = "") -> Counter[str]:
    """Trains until nothing is left; one task fails once. How often each task was leased."""
    leased: Counter[str] = Counter()
    rounds = 0
    while ledger.state() == "working":
        rounds += 1
        assert rounds < 10_000
        end_pauses(ledger)
        for name in names:
            for lease in work(ledger, name, 1)["tasks"]:
                place = f"{lease.get('file', '')}/{lease['start']}"
                leased[place] += 1
                if place == fails and leased[place] == 1:
                    work(ledger, name, failed=[{**ref(lease), "error": "ValueError: bad"}])
                else:
                    done(ledger, name, [lease])
    return leased


def test_a_task_that_fails_once_is_leased_once_more_than_the_others() -> None:
    """ElasticDL's servicer: shards of 10 and 9 records, two epochs; both shards are trained whole."""
    ledger = opened("a", epochs=2, **_files(10, 9))

    leased = _train_all(ledger, "a", fails="shard-0/0")

    expected = {f"shard-0/{start}": 2 for start in (0, 3, 6, 9)}
    expected |= {f"shard-1/{start}": 2 for start in (0, 3, 6)}
    assert leased == {**expected, "shard-0/0": 3}
    assert ledger.datasets["train"].totals.records == 38


@pytest.mark.parametrize(
    ("records", "size", "tasks", "last"), [(100, 5, 20, 5), (101, 5, 21, 1), (101, 1, 101, 1)]
)
def test_records_are_partitioned_as_paddles_chunks(
    records: int, size: int, tasks: int, last: int
) -> None:
    """PaddlePaddle's `partition`; a size of 0 is refused by name (`test_protocol`)."""
    partitioning = Partitioning({"records": records, "task_records": size})
    assert partitioning.count == tasks
    assert partitioning.span(tasks - 1).size == last


def test_twenty_tasks_in_ten_passes_are_done_once_a_pass_among_four_clients() -> None:
    """PaddlePaddle's service: its clients each see all tasks; here they share them."""
    ledger = opened(*"abcd", records=200, epochs=10)

    leased = _train_all(ledger, *"abcd")

    assert set(leased.values()) == {10}
    assert len(leased) == 20
    assert ledger.state() == "done"


def test_late_and_double_reports_change_nothing() -> None:
    """PaddlePaddle's service: of a lease that was given to another, and of one that was done."""
    ledger = opened("a", "b")
    lease = work(ledger, "a", 1)["tasks"][0]
    work(ledger, "a", back=[ref(lease)])
    again = work(ledger, "b", 1)["tasks"][0]
    assert again["task"] == lease["task"]

    assert done(ledger, "a", [lease]) == ["stale"]
    assert done(ledger, "b", [again]) == ["accepted"]
    assert done(ledger, "b", [again]) == ["accepted"]
    assert ledger.datasets["train"].totals.records == 10


def test_a_pass_ends_when_its_last_task_is_dropped() -> None:
    """PaddlePaddle's never did: the next pass began with a task that was done."""
    ledger = opened("a", records=2_000, epochs=2)
    bad: Json = {"error": "ValueError: bad", "record": 1_995}
    dropped = 0
    while ledger.datasets["train"].open.get(0) is not None:
        end_pauses(ledger)
        for lease in work(ledger, "a", 8)["tasks"]:
            if lease["start"] == 1_990 and lease["epoch"] == 0:
                dropped += 1
                work(ledger, "a", failed=[{**ref(lease), **bad}])
            else:
                done(ledger, "a", [lease])

    assert dropped == 3
    assert ledger.datasets["train"].totals.dropped_tasks == 1
    assert work(ledger, "a", 1)["tasks"][0]["epoch"] == 1


def test_the_table_of_cases_names_tests_that_exist() -> None:
    """So that a case is not lost with its test."""
    section = (ROOT / "docs/training.md").read_text().partition(_TABLE)[2].partition("\n## ")[0]
    tests = _TEST.findall(section)
    missing = [
        (path, name)
        for path, name in tests
        if f"def {name}(" not in (ROOT / f"tests/{path}.py").read_text()
    ]
    assert missing == []
    assert len(tests) > 30
