"""Training with parameter servers in this process, and a master in memory."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import edl
import numpy as np
import pytest
from edl import servers
from edl.servers import Table
from edl.servers import loop as loops
from edl_protocol.pserver import Enter

from tests.pserver.serving import RunningServers
from tests.sdk.conftest import Join
from tests.sdk.servers.planes import UNSAVED, plane
from tests.sdk.servers.trained import Alone, Line, Words, points, words
from tests.sdk.servers.trainer_threads import Trainer
from tests.sdk.support.loops import until


def test_a_trainer_learns(two: RunningServers, join: Join) -> None:
    """The servers have what it trained, and each step was reported."""
    member, steps = join(servers=two.urls), list[servers.Step]()
    result = servers.train(Line(), plane(), 20, epochs=3, member=member, on_step=steps.append)
    final = servers.fetch(member=member)

    assert (result.steps, result.records, result.version) == (60, 1200, 60)
    assert result.whole
    assert result.metrics["loss"] < 1e-3
    assert np.allclose(final.dense["w"], [1, 2, 3], atol=0.01)
    assert (final.version, final.tables) == (60, {})
    assert [(step.number, step.version) for step in steps[:2]] == [(1, 1), (2, 2)]
    assert steps[-1].epoch == 2
    assert 0 < steps[-1].exchange_s < steps[-1].seconds


def test_trainers_share_the_work_and_the_parameters(two: RunningServers, join: Join) -> None:
    """Each record is trained once an epoch, by one of them."""
    crew = [
        Trainer(join(f"t-{place}", servers=two.urls), Line(), plane(), epochs=3)
        for place in range(3)
    ]
    results = [trainer.join() for trainer in crew]

    final = servers.fetch(member=join("reader", servers=two.urls))

    assert sum(result.records for result in results) == 1200
    assert {result.version for result in results} == {60}
    assert np.allclose(final.dense["w"], [1, 2, 3], atol=0.05)


@pytest.mark.parametrize(("worker", "exchanged"), [(Line, True), (Alone, False)])
def test_a_late_worker_begins_with_what_others_trained(
    two: RunningServers, join: Join, worker: type[Line], *, exchanged: bool
) -> None:
    """Its first pull is what they have; its first loss is as low. Without exchange it is not so."""
    first = servers.train(worker(), plane(), 20, epochs=3, member=join("early", servers=two.urls))
    trained = servers.fetch(member=join("reader", servers=two.urls)).dense
    late, fresh = worker(), edl.from_arrays("fresh", *points(seed=1))
    servers.train(late, fresh, 20, member=join("late", servers=two.urls))
    same = all(np.array_equal(late.first[name], trained[name]) for name in trained)

    assert first.metrics["loss"] < 1e-3
    assert (same and late.losses[0] < 1e-3) is exchanged


def test_embeddings_are_trained(two: RunningServers, join: Join) -> None:
    """Of each word by itself, at the server that its id says; two trainers meet there."""
    data = edl.from_arrays("words", *words())
    crew = [
        Trainer(join(f"t-{place}", servers=two.urls), Words(rate=2.0), data, epochs=5)
        for place in range(2)
    ]
    for trainer in crew:
        trainer.join()
    final = servers.fetch(member=join("reader", servers=two.urls))
    ids, rows = final.tables["words"]

    assert ids.tolist() == sorted(np.unique(words()[0]).tolist())
    expected = np.linspace(-1, 1, 20)
    assert np.abs(rows[:, 0] + final.dense["b"] - expected).max() < 0.1
    assert [
        server.server.serving.shard.tables["words"].size
        for server in two.all
        if server.server.serving
    ] == [10, 10]


@pytest.mark.parametrize("kind", ["momentum", "adagrad", "adam"])
def test_servers_run_the_optimizer(two: RunningServers, join: Join, kind: str) -> None:
    """As the worker says."""
    rate = {"momentum": 0.02, "adagrad": 0.5, "adam": 0.1}[kind]
    worker = Line(rate=rate, kind=kind)
    result = servers.train(worker, plane(), 20, epochs=4, member=join(servers=two.urls))

    assert result.metrics["loss"] < 0.05


def test_pulls_may_overlap_with_computing(two: RunningServers, join: Join) -> None:
    """Gradients are a version staler then, and it learns all the same."""
    steps = list[servers.Step]()
    result = servers.train(
        Line(),
        plane(),
        20,
        epochs=4,
        overlap=True,
        on_step=steps.append,
        member=join(servers=two.urls),
    )

    assert result.metrics["loss"] < 1e-2
    assert {step.staleness for step in steps[1:]} <= {0, 1}


def test_what_was_pulled_ahead_never_replaces_what_is_newer(
    two: RunningServers, join: Join
) -> None:
    """A push's answer brings parameters that are newer than those that were on their way."""
    rules = servers.Rules(None, False, 0, 0.0, 3)
    own, other = (
        servers.connect(Line(), rules=rules, member=join(name, servers=two.urls))
        for name in ("own", "other")
    )

    def push(who: servers.PserverClient) -> None:
        step = servers.Gradients({"w": np.ones(3), "b": np.ones(1)}, {}, {})
        assert who.push(step, who.next_number(), 1).applied

    push(other)
    coming = own.pull_ahead()
    assert [frame.meta["version"] for frame in coming.result(60)] == [1, 1]
    push(other)
    push(own)
    newest = {name: array.copy() for name, array in own.dense.items()}
    own.apply_pull(coming)
    own.close()
    other.close()

    assert own.version == 3
    assert newest["b"] == pytest.approx(-0.3)
    assert all(np.array_equal(own.dense[name], array) for name, array in newest.items())


def test_a_stale_batch_is_computed_again(two: RunningServers, join: Join) -> None:
    """With what has come in between; each batch counts once."""
    gate, other = threading.Event(), threading.Event()

    def wait(worker: Line) -> None:
        if len(worker.losses) == 2:
            gate.set()
            assert other.wait(60)

    options = {"max_staleness": 0, "epochs": 2}
    slow = Trainer(join("slow", servers=two.urls), Line(before=wait), plane(), **options)
    assert gate.wait(60)
    extra = edl.from_arrays("extra", *points(seed=2, count=60))
    quick = servers.train(
        Line(), extra, 20, max_staleness=0, member=join("quick", servers=two.urls)
    )
    other.set()
    result = slow.join()

    assert quick.steps == 3
    assert result.stale == 1
    assert result.records == 800
    assert result.version == 43


def test_a_trainer_that_is_always_too_late_says_so(
    two: RunningServers, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not try for ever."""
    monkeypatch.setattr(loops, "MAX_TRIES", 3)
    member = join("quick", servers=two.urls)
    helper = servers.connect(Line(), rules=servers.Rules(0, False, 0, 0.0, 3), member=member)

    def hurry(worker: Line) -> None:
        assert len(worker.losses) < 3, "it tries for ever"
        step = servers.Gradients({"w": np.zeros(3)}, {}, {})
        helper.push(step, helper.next_number(), 1)

    slow = Line(before=hurry)
    with pytest.raises(servers.ServersError, match="too slow for max_staleness"):
        servers.train(
            slow, plane(), 20, max_staleness=0, member=join("slow", servers=two.urls), **UNSAVED
        )
    helper.close()


def test_pinned_versions_are_the_same_for_all(two: RunningServers, join: Join) -> None:
    """Whatever is trained meanwhile; until they are let go."""
    data = edl.from_arrays("words", *words())
    rules = servers.Rules(None, False, 0, 0.0, 3)
    first = servers.connect(Words(), rules=rules, member=join("one", servers=two.urls))
    two_ = servers.connect(Words(), rules=rules, member=join("two", servers=two.urls))
    ids = np.unique(words()[0])
    version = first.pin(5)
    before = first.lookup("words", ids)
    servers.train(Words(), data, 20, member=join("three", servers=two.urls), **UNSAVED)
    assert two_.pin(5) == version == 0
    pinned = [client.pinned(5)["b"].tolist() for client in (first, two_)]
    rows = [client.lookup("words", ids, pin=5) for client in (first, two_)]
    assert pinned == [[0.0], [0.0]]
    assert all(np.array_equal(array, before) for array in rows)
    assert not np.array_equal(first.lookup("words", ids), before)
    assert first.lookup("words", np.array([], int)).shape == (0, 1)
    first.unpin(5)
    with pytest.raises(servers.RequestRefused, match="version 5 is not pinned"):
        two_.pinned(5)
    assert len(two_.status()) == 2
    first.close()
    two_.close()


def test_who_only_reads_waits_for_somebody_who_trains(
    two: RunningServers, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And has the parameters as soon as there are any."""
    first, waits = two.all[0].server, threading.Event()
    enter = first.enter

    def recording_enter(body: Enter) -> dict[str, Any]:
        if body.wait_s:
            waits.set()
        return enter(body)

    monkeypatch.setattr(first, "enter", recording_enter)
    member = join("reader", servers=two.urls, patience_s=60.0)
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(servers.fetch, member=member)
        assert waits.wait(60)
        servers.train(Line(), plane(count=20), 20, member=join(servers=two.urls))
        final = reader.result(60)

    assert set(final.dense) == {"w", "b"}


def test_who_only_reads_gives_up_after_its_patience(
    two: RunningServers, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody trains; it asks no server to wait for longer than that."""
    first, waits = two.all[0].server, list[float]()
    enter = first.enter

    def recording_enter(body: Enter) -> dict[str, Any]:
        waits.append(body.wait_s)
        return enter(body)

    monkeypatch.setattr(first, "enter", recording_enter)
    with pytest.raises(servers.ServersUnavailable, match=r"were not ready for 1 s"):
        servers.fetch(member=join("reader", servers=two.urls, patience_s=1.0))

    assert 0 < max(waits) <= 1.0


def test_a_trainer_that_is_to_end_does_not_wait_for_servers(
    two: RunningServers, join: Join
) -> None:
    """What it has in hand goes back to the master."""
    member = join(servers=two.urls, patience_s=60.0)

    def kill(worker: Line) -> None:
        if len(worker.losses) == 3:
            two.all[1].kill()

    trainer = Trainer(member, Line(before=kill), plane())
    until(lambda: len(trainer.worker.losses) >= 4)
    member.stop("test")
    result = trainer.join()

    assert not result.whole
    assert result.steps == 3


class _Clipped(Words):
    """Its gradients are too large."""

    def optimizer(self) -> dict[str, Any]:
        """Clips by the norm of everything."""
        return {**super().optimizer(), "learning_rate": 1.0, "clip_norm": 0.5}


def test_a_gradient_is_clipped_by_its_norm_over_all_servers(
    two: RunningServers, join: Join
) -> None:
    """Each server holds a part only; together the update has the norm that was asked for."""
    rules = servers.Rules(None, False, 0, 0.0, 1)
    client = servers.connect(_Clipped(), rules=rules, member=join(servers=two.urls))
    ids = np.arange(4)
    before = client.lookup("words", ids)
    gradients = servers.Gradients(
        {"b": np.full(1, 3.0)}, {"words": (ids, np.full((4, 1), 2.0))}, {}
    )
    client.push(gradients, client.next_number(), 1)
    moved = np.append(before - client.lookup("words", ids), -client.dense["b"])
    status = client.status()
    client.close()

    assert np.allclose(moved, np.array([2, 2, 2, 2, 3]) * 0.1)
    assert [server["clipped"] for server in status] == [1, 1]


class _Few(Words):
    """Its table is too small."""

    def tables(self) -> dict[str, Table]:
        """At most six of twenty words."""
        return {"words": Table(1, 0.01, 3, max_rows=6)}


def test_a_table_without_room_is_said_and_training_goes_on(
    two: RunningServers, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with what to do; the result counts what was dropped."""
    data = edl.from_arrays("words", *words())
    result = servers.train(_Few(), data, 20, epochs=2, member=join(servers=two.urls), **UNSAVED)
    final = servers.fetch(member=join("reader", servers=two.urls))

    assert result.whole
    assert result.refused_rows > 0
    assert len(final.tables["words"][0]) == 6
    assert caplog.text.count("cannot store more table rows") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"admit_after": 0},
            "table 'words': admit_after is 0: it must be a whole number, at least 1",
        ),
        ({"max_rows": 1.5}, "max_rows is 1.5"),
        ({"evict": "fifo"}, "evict is 'fifo': it must be one of 'lru', 'lfu', or None"),
    ],
)
def test_options_of_tables_are_checked_before_anything_is_sent(
    join: Join, options: dict[str, Any], message: str
) -> None:
    """One line, with the table."""
    worker = Words()
    worker.tables = lambda: {"words": Table(1, **options)}  # type: ignore[method-assign]
    with pytest.raises(edl.DataError, match=message):
        servers.train(worker, edl.from_arrays("words", *words()), 20, member=join())
