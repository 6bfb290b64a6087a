"""The decision log of one namespace is bounded: segments, and the newest decision about each job."""

from typing import Any

import pytest

from kube import record_log
from policy.records import Record
from reconciler.records.namespace_log import MAX_SEGMENTS, SEGMENT_BYTES, NamespaceLog


def _record(number: int, text: str = "x") -> Record:
    return Record(1000.0 + number, "job ml/net", f"Code{number}", text, job="ml/net")


def _store(log: NamespaceLog, stored: dict[str, Any], now_s: float, oldest_s: float = 0.0) -> None:
    for write in log.writes(now_s):
        labels = {record_log.LABEL_LOG: write.log}
        stored[write.name] = {"metadata": {"labels": labels}, **write.fields}
        log.written(write, now_s)
    for name in log.deletions(oldest_s):
        stored.pop(name)
        log.deleted(name)


def test_a_namespace_has_a_bounded_number_of_segments() -> None:
    """The oldest go; the newest decision about each job stays."""
    log, stored = NamespaceLog("edl-1", {}), dict[str, Any]()
    old = Record(1.0, "job ml/old", "NoRoom", job="ml/old", since_s=1.0)
    log.set_current(old, 100.0)
    for number in range(MAX_SEGMENTS + 20):
        log.add(_record(number, "x" * SEGMENT_BYTES))
        _store(log, stored, 1000.0 + number)
    read = [record for segment in stored.values() for record in record_log.decode(segment)]

    assert len(stored) <= MAX_SEGMENTS + 2
    assert old in record_log.decode(stored["edl-current-0"])
    assert max(record.at_s for record in read) == 1000.0 + MAX_SEGMENTS + 19
    assert min(record.at_s for record in read if record != old) > 1000.0


def test_old_segments_are_deleted() -> None:
    """By the age of their newest record; one that is still written stays."""
    log, stored = NamespaceLog("edl-1", {}), dict[str, Any]()
    for number in range(3):
        log.add(_record(number, "x" * SEGMENT_BYTES))
    log.add(_record(3))
    _store(log, stored, 1100.0, oldest_s=1001.5)

    assert [record_log.decode(stored[name])[0].code for name in sorted(stored)] == [
        "Code2",
        "Code3",
    ]


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_segment_that_was_never_full_is_deleted_too(*, is_restored: bool) -> None:
    """Most namespaces never fill one: none of their records is older than what is kept."""
    log, stored = NamespaceLog("edl-1", {}), dict[str, Any]()
    log.add(_record(0))
    _store(log, stored, 1000.0, oldest_s=1000.0)
    assert stored
    if is_restored:
        log = NamespaceLog("edl-2", stored)
    _store(log, stored, 2000.0, oldest_s=1500.0)
    assert stored == {}
    assert log.is_empty

    log.add(_record(1000))
    _store(log, stored, 2000.0, oldest_s=1500.0)
    (segment,) = stored.values()
    assert [record.code for record in record_log.decode(segment)] == ["Code1000"]


def test_a_segment_that_is_not_half_full_is_continued() -> None:
    """Leaders that change often make no more segments."""
    stored = dict[str, Any]()
    for leader in range(5):
        log = NamespaceLog(f"edl-{leader}", stored)
        log.add(_record(leader))
        _store(log, stored, 1000.0)

    (segment,) = stored.values()
    assert [record.code for record in record_log.decode(segment)] == [
        f"Code{leader}" for leader in range(5)
    ]


def test_records_that_cannot_be_written_are_dropped_in_the_end() -> None:
    """And counted: memory is bounded."""
    log = NamespaceLog("edl-1", {})
    for number in range(50):
        log.add(_record(number, "x" * SEGMENT_BYTES))

    assert log.dropped
    assert log.unwritten + log.dropped == 50


def test_many_jobs_are_several_objects_of_current_decisions() -> None:
    """That are deleted again when the jobs go."""
    log, stored = NamespaceLog("edl-1", {}), dict[str, Any]()
    for number in range(1001):
        key = f"ml/job-{number}"
        log.set_current(Record(1.0, f"job {key}", "NoRoom", job=key, since_s=1.0), 10.0)
    _store(log, stored, 10.0)
    current = [name for name in stored if name.startswith("edl-current-")]
    restored = NamespaceLog("edl-2", stored)
    for number in range(1000):
        restored.forget(f"ml/job-{number}", 20.0)
    _store(restored, stored, 100.0)

    assert len(current) == 3
    assert [name for name in stored if name.startswith("edl-current-")] == ["edl-current-0"]
    assert [record.job for record in record_log.decode(stored["edl-current-0"])] == ["ml/job-1000"]
    restored.forget("ml/job-1000", 200.0)
    _store(restored, stored, 300.0)
    assert "edl-current-0" not in stored


def test_what_others_have_stored_costs_a_new_leader_little() -> None:
    """Objects by names that EDL gives none, and more records than it writes, are left out; old ones go."""
    lines = [record_log.line(Record(1.0, f"job ml/{n}", "X", job=f"ml/{n}")) for n in range(2000)]
    fields = record_log.encode(lines, 1.0, 2.0)
    current = {"metadata": {"labels": {record_log.LABEL_LOG: record_log.CURRENT}}, **fields}
    names = ("edl-current-0", "edl-current-99999", "edl-current-x", "mine")
    stored = dict.fromkeys(names, current) | {"edl-current-y": fields}
    log = NamespaceLog("edl-1", stored)

    assert len(log.current) == 500
    assert log.deletions(oldest_s=3.0) == ["edl-current-y"]
    log.deleted("edl-current-y")
    assert log.deletions(oldest_s=3.0) == []
