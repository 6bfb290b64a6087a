import dataclasses
import logging
import threading
from collections import deque
from typing import Any

import edl
import pytest
from edl import Refused, Unavailable

from tests.sdk.conftest import Join
from tests.sdk.support.loops import flat, numbers, run_after_each, tasks, until
from tests.sdk.support.master_server import Server, before_away, garbage, lost


def test_a_dead_master_does_not_end_training(
    server: Server, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop continues with prefetched batches, waits, and trains every record once."""
    caplog.set_level(logging.INFO, "edl")
    trained: list[int] = []
    for batch in edl.batches(numbers(120), 4, task_records=4, prefetch=4, member=join()):
        trained += batch
        if len(trained) == 20:
            server.stop()
            threading.Timer(0.4, server.start).start()

    assert list(range(120)) == sorted(trained)
    assert {1} == {task.accepted for task in server.master.state.tasks.values()}
    assert "the master is back after" in caplog.text


def test_a_master_that_stays_away_ends_the_loop_after_its_patience(
    server: Server, join: Join
) -> None:
    """The error names the setting that decides."""
    with pytest.raises(Unavailable) as caught:
        run_after_each(edl.batches(numbers(120), 4, member=join(patience_s=0.2)), server.stop)

    text = "the master has been away for more than 0.2 s (EDL_PATIENCE_S)"
    assert str(caught.value) == text


@pytest.mark.parametrize("fault", [lost, garbage, before_away])
def test_a_lost_answer_costs_nothing(server: Server, join: Join, fault: Any) -> None:
    """The same call is repeated: no task is leased without an answer, and none is leased twice."""
    server.faults["/v1/work"] = deque([fault] * 3)
    trained = flat(edl.batches(numbers(60), 4, task_records=4, member=join()))

    assert list(range(60)) == sorted(trained)
    assert {1} == {task.attempt for task in server.master.state.tasks.values()}
    assert {1} == {task.accepted for task in server.master.state.tasks.values()}


def test_another_master_learns_from_the_trainers_what_its_snapshot_lacks(
    server: Server, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    """Its books are older than the last answers: nothing acknowledged is trained twice."""
    server.master.heartbeat_s = 10
    trained: list[int] = []
    for batch in edl.batches(numbers(160), 4, task_records=4, member=join()):
        trained += batch
        if len(trained) == 20:
            until(lambda: server.master.state.tasks["train/0/2"].done)
            server.master.store_snapshot()
        if len(trained) == 60:
            until(lambda: server.master.state.tasks["train/0/10"].done)
            server.stop()
            server.master.take_over()
            server.start()

    assert list(range(160)) == sorted(trained)
    assert {1} == {task.accepted for task in server.master.state.tasks.values()}
    assert {1} == {task.attempt for task in server.master.state.tasks.values()}
    assert 8 <= len(server.bodies("/v1/join")[-1]["done"]) <= 13
    assert "a new master serves job digits (generation 2)" in caplog.text


def test_the_heartbeat_informs_another_master_during_a_long_step(
    server: Server, join: Join
) -> None:
    """A program in a long step makes no calls for work: its leases are in the heartbeat."""
    steps = iter(edl.batches(numbers(16), 4, task_records=4, prefetch=2, member=join()))
    next(steps)
    until(lambda: sum(task.holder is not None for task in tasks(server)) >= 2)
    server.master.store_snapshot()
    server.master.take_over()
    until(lambda: sum(task.holder is not None for task in tasks(server)) >= 2)

    assert sum(len(batch) for batch in steps) == 12
    assert {1} == {task.attempt for task in tasks(server)}


def test_acknowledgements_in_a_snapshot_are_not_sent_again(join: Join) -> None:
    """What the master calls safe is forgotten here."""
    member = join()
    for _ in edl.batches(numbers(16), 4, task_records=4, member=member):
        pass

    assert member.lease_table.not_yet_durable() == []


def test_a_master_that_was_replaced_is_not_believed(join: Join) -> None:
    """An answer of an older generation counts as none."""
    member = join()
    member.join()
    member.work_calls.generation = 2
    with pytest.raises(Unavailable, match="EDL_PATIENCE_S"):
        flat(edl.batches(numbers(16), 4, member=_impatient(member)))


def test_a_lost_lease_is_not_trained_and_not_acknowledged(
    server: Server, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    """The heartbeat reports it; batches of this lease alone are skipped, trained records count."""
    member = join()
    steps = iter(edl.batches(numbers(32), 4, task_records=8, prefetch=4, member=member))
    next(steps)
    with server.master.changed:
        server.master.state.tasks["train/0/0"].holder = "somebody"
    until(lambda: "leases lost: other trainers train train/0/0" in caplog.text)
    next(steps)
    with server.master.changed:
        server.master.state.tasks["train/0/0"].done = 99
    records = flat(steps)

    assert set(records) <= set(range(8, 32))
    assert member.lease_table.counts.wasted == 4


def test_another_process_with_the_same_name_ends_this_one(join: Join) -> None:
    """The loop raises the master's refusal."""
    member = join()
    steps = iter(edl.batches(numbers(400), 4, task_records=4, member=member))
    next(steps)
    join().join()
    until(lambda: member.stopping)
    with pytest.raises(Refused, match="started anew"):
        next(steps)


@pytest.mark.usefixtures("patient")
def test_the_master_can_stop_a_loop(server: Server, join: Join) -> None:
    """The loop ends after the batch in hand, without an error, and hands back what it holds."""
    member, batches = join(), 0
    for _ in edl.batches(numbers(400), 4, task_records=4, member=member):
        batches += 1
        with server.master.changed:
            server.master.stopped = True
        until(lambda: member.stopping)

    assert batches == 1
    assert {None} == {task.holder for task in tasks(server)}


def _impatient(member: edl.Session) -> edl.Session:
    member.settings = dataclasses.replace(member.settings, patience_s=0.2)
    return member
