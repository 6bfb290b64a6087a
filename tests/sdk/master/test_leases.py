"""The lease table: tasks that a trainer holds, and its reports of them."""

import dataclasses
import json

import pytest
from edl.master import leases
from edl.master.leases import LeaseTable, Portion
from edl.master.protocol import Lease
from edl_protocol.master import MAX_BYTES


def _lease(index: int = 0, attempt: int = 1, dataset: str = "train") -> Lease:
    start = 10 * index
    task = f"{dataset}/0/{index}"
    return Lease(task, attempt, "training", dataset, 0, start, start + 10, None, 60.0)


@pytest.fixture
def lease_table() -> LeaseTable:
    """A table with the lease of task 0."""
    table = LeaseTable()
    assert table.add(_lease())
    return table


def _train(lease_table: LeaseTable, lease: Lease, size: int) -> bool:
    return lease_table.record_step([Portion(lease, size)], {})


def test_a_task_is_done_when_all_its_records_were_trained(lease_table: LeaseTable) -> None:
    """Not before; and it is reported until the report is answered."""
    assert not _train(lease_table, _lease(), 6)
    assert not lease_table.report()
    assert _train(lease_table, _lease(), 4)
    assert lease_table.has_report
    report = lease_table.report()

    assert report.done == [{"task": "train/0/0", "attempt": 1, "records": 10, "steps": 2}]
    assert lease_table.report().done == report.done
    assert lease_table.apply_results(report, ["accepted"], call=3) == []
    assert lease_table.is_empty
    assert lease_table.counts.acknowledged == 10
    assert lease_table.counts_of("train").steps == 2
    assert lease_table.not_yet_durable() == report.done
    lease_table.mark_durable(2)
    assert lease_table.not_yet_durable() == report.done
    lease_table.mark_durable(3)
    assert lease_table.not_yet_durable() == []


def test_a_step_over_two_tasks_counts_for_the_first(lease_table: LeaseTable) -> None:
    """Steps of all tasks sum up to the steps that were made."""
    lease_table.add(_lease(1))
    lease_table.record_step([Portion(_lease(), 10), Portion(_lease(1), 10)], {"loss": 2.0})

    assert [entry["steps"] for entry in lease_table.report().done] == [1, 0]
    assert [entry["metrics"] for entry in lease_table.report().done] == [{"loss": 2.0}] * 2
    assert lease_table.counts_of("train").steps == 1


def test_what_is_trained_and_not_accepted_is_wasted(lease_table: LeaseTable) -> None:
    """Stale, or lost while a step was under way."""
    lease_table.add(_lease(1))
    _train(lease_table, _lease(), 10)
    _train(lease_table, _lease(1), 5)
    assert lease_table.apply_results(lease_table.report(), ["stale"], call=1) == ["train/0/0"]
    assert lease_table.drop_lost(lease_table.held_entries(), ["train/0/1"]) == ["train/0/1"]
    _train(lease_table, _lease(1), 5)

    assert (
        lease_table.counts.trained,
        lease_table.counts.acknowledged,
        lease_table.counts.wasted,
    ) == (20, 0, 20)


def test_a_report_that_is_not_answered_stays(lease_table: LeaseTable) -> None:
    """A short list of results is no answer to the rest."""
    _train(lease_table, _lease(), 10)
    assert lease_table.apply_results(lease_table.report(), [], call=1) == []

    assert lease_table.has_report


def test_an_older_attempt_changes_nothing(lease_table: LeaseTable) -> None:
    """The same lease twice is one; a newer attempt replaces it, and old answers miss it."""
    assert not lease_table.add(_lease())
    _train(lease_table, _lease(), 10)
    old, entries = lease_table.report(), lease_table.held_entries()
    assert lease_table.add(_lease(attempt=2))
    assert lease_table.apply_results(old, ["accepted"], call=1) == []
    assert lease_table.drop_lost(entries, ["train/0/0"]) == []

    assert lease_table.is_active(_lease(attempt=2))
    assert not lease_table.is_active(_lease())
    assert lease_table.counts.wasted == 10


def test_a_heartbeat_does_not_lose_what_is_done(lease_table: LeaseTable) -> None:
    """Its own report was on the way: the answer to that decides."""
    _train(lease_table, _lease(), 10)

    assert lease_table.drop_lost(lease_table.held_entries(), ["train/0/0"]) == []
    assert lease_table.has_report


def test_a_failed_task_is_reported_once_and_no_longer_active(lease_table: LeaseTable) -> None:
    """With its record, where one is to blame."""
    lease_table.fail(_lease(), "ValueError: no", 7)
    lease_table.fail(_lease(), "ValueError: again")
    lease_table.fail(_lease(9), "ValueError: not held")
    report = lease_table.report()
    assert report.failed == [
        {"task": "train/0/0", "attempt": 1, "error": "ValueError: no", "record": 7}
    ]
    assert not lease_table.is_active(_lease())
    lease_table.apply_results(report, ["accepted"], call=1)

    assert lease_table.is_empty
    assert (lease_table.counts.failed, lease_table.counts.acknowledged) == (1, 0)


def test_hands_back_what_is_not_done(lease_table: LeaseTable) -> None:
    """Of one data set, or all; with how far it was."""
    lease_table.add(_lease(1))
    lease_table.add(_lease(2, dataset="test"))
    _train(lease_table, _lease(), 10)
    _train(lease_table, _lease(1), 3)

    kept = {"trained": 3, "counted": 3, "steps": 1}
    assert lease_table.unfinished("train") == [{"task": "train/0/1", "attempt": 1, **kept}]
    assert len(lease_table.clear("train")) == 2
    assert [entry["task"] for entry in lease_table.clear()] == ["test/0/2"]
    assert lease_table.clear() == []
    assert (lease_table.counts.acknowledged, lease_table.counts.wasted) == (12, 1)


def test_a_successor_reports_acknowledgements_until_its_first_call_is_safe(
    lease_table: LeaseTable,
) -> None:
    """Its own calls are numbered from 1; the numbers of its predecessor do not matter."""
    _train(lease_table, _lease(), 10)
    report = lease_table.report()
    lease_table.apply_results(report, ["accepted"], call=40)
    successor = LeaseTable()
    successor.load(lease_table.dump())

    assert successor.not_yet_durable() == report.done
    successor.mark_durable(0)
    assert successor.not_yet_durable() == report.done
    successor.mark_durable(1)
    assert successor.not_yet_durable() == []


def test_a_lease_table_is_dumped_as_json_with_all_its_entries(lease_table: LeaseTable) -> None:
    """Tasks in hand with their metrics, what has ended, and what is not safe yet."""
    for index in (1, 2, 3):
        lease_table.add(_lease(index))
    lease_table.record_step([Portion(_lease(1), 10)], {})
    lease_table.apply_results(lease_table.report(), ["accepted"], call=1)
    lease_table.record_step([Portion(_lease(2), 10)], {"loss": 0.5})
    lease_table.fail(_lease(3), "x" * 501)
    lease_table.record_step([Portion(_lease(), 4)], {"loss": 2.0})
    dumped = json.loads(json.dumps(lease_table.dump()))
    other = LeaseTable()
    other.add(_lease(9))
    other.load(dumped)

    assert dumped["failures"] == ["train/0/3"]
    assert dumped["unsafe"] == [{"task": "train/0/1", "attempt": 1, "records": 10, "steps": 1}]
    assert dumped["held"][0] == {
        "lease": dataclasses.asdict(_lease()),
        "trained": 4,
        "before": 0,
        "steps": 1,
        "sums": {"loss": 8.0},
        "weights": {"loss": 4},
    }
    assert other.dump() == lease_table.dump()
    assert other.tracked_tasks() == {f"train/0/{index}" for index in range(4)}
    failed = {"task": "train/0/3", "attempt": 1, "error": "x" * 500}
    done = {"task": "train/0/2", "attempt": 1, "records": 10, "steps": 1, "metrics": {"loss": 0.5}}
    assert (other.report().done, other.report().failed) == ([done], [failed])


@pytest.mark.parametrize(("kind", "has_metrics"), [("training", False), ("evaluation", True)])
def test_acknowledgements_that_no_snapshot_has_fit_one_call(
    kind: str, *, has_metrics: bool
) -> None:
    """Thousands, while snapshots cannot be stored. The metrics of training mean nothing to a master."""
    table, metrics = LeaseTable(), {f"metric_of_group_{n}": 1 / 3 for n in range(16)}
    lease = dataclasses.replace(_lease(), kind=kind)
    table.add(lease)
    table.record_step([Portion(lease, 10)], metrics)
    report = table.report()
    table.apply_results(report, ["accepted"], call=1)
    other = dataclasses.replace(_lease(1), kind=kind)
    table.add(other)
    table.record_step([Portion(other, 10)], metrics)
    table.complete_handover([])
    entries = table.not_yet_durable()

    assert "metrics" in report.done[0]
    assert ["metrics" in entry for entry in entries] == 2 * [has_metrics]
    if kind == "training":
        longest = max(len(json.dumps(entry)) for entry in entries)
        assert leases._MAX_NOT_YET_DURABLE * 2 * longest < MAX_BYTES  # noqa: SLF001 - its bound


def test_a_successor_sends_done_and_held_tasks(lease_table: LeaseTable) -> None:
    """A failed task is only held: a call reports the failure. The answer records the rest."""
    for index in (1, 2, 3):
        lease_table.add(_lease(index))
    _train(lease_table, _lease(), 10)
    lease_table.fail(_lease(1), "ValueError: no")
    _train(lease_table, _lease(3), 2)

    done, refs = lease_table.handover()
    lease_table.complete_handover(["train/0/3"])

    assert done == [{"task": "train/0/0", "attempt": 1, "records": 10, "steps": 1}]
    assert refs == [{"task": f"train/0/{index}", "attempt": 1} for index in (1, 2, 3)]
    assert lease_table.not_yet_durable() == done
    assert [entry["task"] for entry in lease_table.held_entries()] == ["train/0/1", "train/0/2"]
    assert (lease_table.counts.trained, lease_table.counts.wasted) == (12, 2)
    lease_table.mark_durable(1)
    assert lease_table.not_yet_durable() == []


def test_a_new_leader_keeps_what_was_begun_or_has_ended(lease_table: LeaseTable) -> None:
    """The master leases all other tasks again, in its order."""
    for index in (1, 2, 3):
        lease_table.add(_lease(index))
    _train(lease_table, _lease(), 10)
    lease_table.fail(_lease(1), "ValueError: no")
    _train(lease_table, _lease(3), 2)

    lease_table.drop_unstarted()

    tasks = [entry["task"] for entry in lease_table.held_entries()]
    assert tasks == ["train/0/0", "train/0/1", "train/0/3"]
    assert [entry["task"] for entry in lease_table.report().failed] == ["train/0/1"]
    assert lease_table.counts.wasted == 0


def test_discarded_tasks_count_as_not_wasted(
    lease_table: LeaseTable,
) -> None:
    """Another member has reported them to the master."""
    lease_table.add(_lease(1))
    _train(lease_table, _lease(), 4)
    lease_table.discard(["train/0/0", "train/0/7"])

    assert lease_table.tracked_tasks() == {"train/0/1"}
    assert lease_table.counts.wasted == 0


def test_answers_are_for_the_entries_in_their_order(lease_table: LeaseTable) -> None:
    """Done first, then failed, then handed back; only what is done counts as acknowledged."""
    for index in (1, 2):
        lease_table.add(_lease(index))
    _train(lease_table, _lease(), 10)
    _train(lease_table, _lease(1), 3)
    lease_table.fail(_lease(1), "ValueError: no")
    report = lease_table.report()
    report.back = lease_table.unfinished("train")

    assert lease_table.apply_results(report, ["accepted", "accepted", "stale"], call=1) == [
        "train/0/2"
    ]
    assert lease_table.is_empty
    assert (
        lease_table.counts.acknowledged,
        lease_table.counts.failed,
        lease_table.counts.wasted,
    ) == (13, 1, 0)
    assert [entry["task"] for entry in lease_table.not_yet_durable()] == ["train/0/0"]
