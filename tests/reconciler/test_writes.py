"""Writes to Jobs, one at a time."""

from dataclasses import replace

import pytest

from kube import request
from kube.object_change import ObjectChange
from kube.request import JOBS
from policy.cluster import trainer_accounting
from policy.names import ANNOTATION_BOOKS
from reconciler.jobs.writer import JobUpdate, is_lost_race
from tests.reconciler.write_bench import OPENED, Bench


def test_books_are_written_and_read_back(bench: Bench) -> None:
    """The index has the answer at once, text and version included."""
    assert bench.writer.write_accounting([(bench.known, OPENED)], bench.pool) == [None]
    assert bench.known == bench.job()
    assert bench.known.accounting == OPENED


@pytest.mark.parametrize("first", [True, False])
def test_books_are_not_written_over_others(bench: Bench, *, first: bool) -> None:
    """Whether they are the first or not: a decision based on an older version is void."""
    if not first:
        bench.writer.write_accounting([(bench.known, OPENED)], bench.pool)
    before = bench.known
    other = {"metadata": {"annotations": {ANNOTATION_BOOKS: '{"next":9,"open":"8"}'}}}
    bench.api.ask(request.merge_patch(JOBS, "ml", "net", other))
    written = bench.writer.write_accounting(
        [(before, trainer_accounting.reserve(before.accounting, 1)[0])], bench.pool
    )

    assert [error is not None and is_lost_race(error) for error in written] == [True]
    assert bench.job().accounting.next_id == 9


def test_a_report_is_one_write(bench: Bench) -> None:
    """Status and accounting are written together, so that no reader sees one without the other."""
    new_status = replace(bench.known.status, active=2, start_s=1.0)
    report = JobUpdate(bench.known, new_status, trainer_accounting.serialize(OPENED))
    written = bench.writer.write_updates([report], bench.pool)

    assert written == [True]
    assert len(bench.api.writes) == 1
    assert (bench.job().status.active, bench.job().accounting) == (2, OPENED)


def test_a_report_on_an_older_job_is_not_written(bench: Bench) -> None:
    """The next tick makes it from what is there then."""
    report = JobUpdate(bench.known, bench.known.status, trainer_accounting.serialize(OPENED))
    bench.api.ask(request.merge_patch(JOBS, "ml", "net", {"metadata": {"labels": {"a": "b"}}}))

    assert bench.writer.write_updates([report], bench.pool) == [False]


def test_an_older_record_never_replaces_our_newest_write(bench: Bench) -> None:
    """The watch may be behind; once it has caught up, it is right again."""
    old = bench.known
    bench.writer.write_accounting([(old, OPENED)], bench.pool)
    newest = bench.known
    bench.index.put_job(old)
    bench.writer.restore_newest({old.uid: ObjectChange(None, old)})
    behind = bench.known
    bench.index.put_job(newest)
    bench.writer.restore_newest({old.uid: ObjectChange(old, newest)})

    assert behind == newest == bench.known


def test_a_job_that_is_gone_is_forgotten(bench: Bench) -> None:
    """Our newest write does not bring it back."""
    bench.writer.write_accounting([(bench.known, OPENED)], bench.pool)
    deleted = bench.known
    bench.index.drop_job(deleted.key)
    bench.writer.restore_newest({deleted.uid: ObjectChange(deleted, None)})
    bench.writer.restore_newest(
        {deleted.uid: ObjectChange(None, replace(deleted, resource_version="1"))}
    )

    assert bench.index.jobs == {}


def test_a_version_that_is_no_number_counts_as_old(bench: Bench) -> None:
    """Versions are opaque by contract; our own write is kept then."""
    bench.writer.write_accounting([(bench.known, OPENED)], bench.pool)
    newest = bench.known
    bench.writer.restore_newest(
        {newest.uid: ObjectChange(None, replace(newest, resource_version="x"))}
    )

    assert bench.known == newest


def test_a_job_that_stopped_being_elastic_is_not_entered(bench: Bench) -> None:
    """Its annotations were taken away while we wrote."""
    patch = {"metadata": {"annotations": {"edl.training/min-trainers": None}}}
    bench.api.ask(request.merge_patch(JOBS, "ml", "net", patch))
    patch = {"metadata": {"annotations": {"edl.training/max-trainers": None}}}
    bench.api.ask(request.merge_patch(JOBS, "ml", "net", patch))

    assert not bench.writer.write_parallelism(bench.known, 3)


def test_parallelism_is_written_to_this_very_job(bench: Bench) -> None:
    """Not to one made again under its name."""
    other = replace(bench.known, uid="another")

    assert bench.writer.write_parallelism(bench.known, 3)
    assert not bench.writer.write_parallelism(other, 4)
    assert bench.job().parallelism == 3
