"""Training with parameter servers in this process, and a master in memory."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import edl
import numpy as np
import pytest
from edl import servers
from edl.errors import DataError, SettingError
from edl.servers import loop as loops

from pserver.protocol import Enter
from tests.pserver.serving import Servers
from tests.sdk.conftest import Join
from tests.sdk.crews import Trainer
from tests.sdk.loops import until
from tests.sdk.servers import Server
from tests.sdk.trained import Alone, Line, Words, points, words

UNSAVED: dict[str, Any] = {"checkpoint_seconds": 0.0}
"""No checkpoints."""


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Servers]:
    """Two servers of one job, in one folder."""
    found = Servers(tmp_path / "servers", 2)
    yield found
    found.stop()


def plane(**more: Any) -> edl.Dataset:
    """Points in a data set."""
    return edl.from_arrays("points", *points(**more))


def test_a_trainer_learns(two: Servers, join: Join) -> None:
    """What it trained is at the servers, and each step was told."""
    member, steps = join(servers=two.urls), list[servers.Step]()
    result = servers.train(Line(), plane(), 20, epochs=5, member=member, on_step=steps.append)
    final = servers.fetch(member=member)

    assert (result.steps, result.records, result.version) == (100, 2000, 100)
    assert result.whole
    assert result.metrics["loss"] < 1e-3
    assert np.allclose(final.dense["w"], [1, 2, 3], atol=0.01)
    assert (final.version, final.tables) == (100, {})
    assert [(one.number, one.version) for one in steps[:2]] == [(1, 1), (2, 2)]
    assert steps[-1].epoch == 4
    assert 0 < steps[-1].exchange_s < steps[-1].seconds


def test_trainers_share_the_work_and_the_parameters(two: Servers, join: Join) -> None:
    """Each record is trained once an epoch, by one of them."""
    crew = [
        Trainer(join(f"t-{place}", servers=two.urls), Line(rate=0.05), plane(), epochs=5)
        for place in range(3)
    ]
    results = [one.join() for one in crew]

    final = servers.fetch(member=join("reader", servers=two.urls))

    assert sum(one.records for one in results) == 2000
    assert {one.version for one in results} == {100}
    assert np.allclose(final.dense["w"], [1, 2, 3], atol=0.05)


@pytest.mark.parametrize(("worker", "exchanged"), [(Line, True), (Alone, False)])
def test_a_late_worker_begins_with_what_others_trained(
    two: Servers, join: Join, worker: type[Line], *, exchanged: bool
) -> None:
    """Its first pull is what they have; its first loss is as low. Without exchange it is not so."""
    first = servers.train(worker(), plane(), 20, epochs=5, member=join("early", servers=two.urls))
    trained = servers.fetch(member=join("reader", servers=two.urls)).dense
    late, fresh = worker(), edl.from_arrays("fresh", *points(seed=1))
    servers.train(late, fresh, 20, member=join("late", servers=two.urls))
    same = all(np.array_equal(late.first[name], trained[name]) for name in trained)

    assert first.metrics["loss"] < 1e-3
    assert (same and late.losses[0] < 1e-3) is exchanged


def test_embeddings_are_trained(two: Servers, join: Join) -> None:
    """Of each word by itself, at the server that its id says; two trainers meet there."""
    data = edl.from_arrays("words", *words())
    crew = [
        Trainer(join(f"t-{place}", servers=two.urls), Words(rate=2.0), data, epochs=6)
        for place in range(2)
    ]
    for one in crew:
        one.join()
    final = servers.fetch(member=join("reader", servers=two.urls))
    ids, rows = final.tables["words"]

    assert ids.tolist() == sorted(np.unique(words()[0]).tolist())
    wanted = np.linspace(-1, 1, 20)
    assert np.abs(rows[:, 0] + final.dense["b"] - wanted).max() < 0.1
    assert [
        one.server.serving.shard.tables["words"].size for one in two.all if one.server.serving
    ] == [10, 10]


@pytest.mark.parametrize("kind", ["momentum", "adagrad", "adam"])
def test_servers_run_the_optimizer(two: Servers, join: Join, kind: str) -> None:
    """As the worker says."""
    rate = {"momentum": 0.02, "adagrad": 0.5, "adam": 0.1}[kind]
    worker = Line(rate=rate, kind=kind)
    result = servers.train(worker, plane(), 20, epochs=6, member=join(servers=two.urls))

    assert result.metrics["loss"] < 0.05


def test_pulls_may_overlap_with_computing(two: Servers, join: Join) -> None:
    """Gradients are a version staler then, and it learns all the same."""
    steps = list[servers.Step]()
    result = servers.train(
        Line(rate=0.05),
        plane(),
        20,
        epochs=8,
        overlap=True,
        on_step=steps.append,
        member=join(servers=two.urls),
    )

    assert result.metrics["loss"] < 1e-2
    assert {one.staleness for one in steps[1:]} <= {0, 1}


def test_what_was_pulled_ahead_never_replaces_what_is_newer(two: Servers, join: Join) -> None:
    """A push's answer brings parameters that are newer than those that were on their way."""
    rules = servers.Rules(None, False, 0, 0.0, 3)
    own, other = (
        servers.connect(Line(), rules=rules, member=join(name, servers=two.urls))
        for name in ("own", "other")
    )

    def push(who: servers.Servers) -> None:
        step = servers.Gradients({"w": np.ones(3), "b": np.ones(1)}, {}, {})
        assert who.push(step, who.next_number(), 1).applied

    push(other)
    coming = own.ahead()
    assert [frame.meta["version"] for frame in coming.result(20)] == [1, 1]
    push(other)
    push(own)
    newest = {name: array.copy() for name, array in own.dense.items()}
    own.take(coming)
    own.close()
    other.close()

    assert own.version == 3
    assert newest["b"] == pytest.approx(-0.3)
    assert all(np.array_equal(own.dense[name], array) for name, array in newest.items())


def test_a_stale_batch_is_computed_again(two: Servers, join: Join) -> None:
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
    two: Servers, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not try for ever."""
    monkeypatch.setattr(loops, "MOST_TRIES", 3)
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


@pytest.mark.parametrize(
    ("other", "options", "said"),
    [
        (Line(dim=4), {}, r"'w' has shape \[3\] at the servers and has shape \[4\]"),
        (Line(rate=0.2), {}, "optimizer.learning_rate is 0.1 at the servers and 0.2"),
        (Words(), {}, "'w' has shape .* and is missing in this trainer"),
        (Line(), {"code": {"git": "b"}}, "code.git is 'a' at the servers and 'b' in this trainer"),
        (Line(), {"max_staleness": 3}, "rules.max_staleness is None at the servers and 3"),
    ],
)
def test_trainers_of_different_programs_are_refused(
    two: Servers, join: Join, other: Line, options: dict[str, Any], said: str
) -> None:
    """The first one's counts; the text names both values."""
    code: dict[str, Any] = {"code": {"git": "a"}}
    servers.train(Line(), plane(count=20), 20, member=join("first", servers=two.urls), **code)
    with pytest.raises(servers.Declined, match=said) as caught:
        servers.train(
            other, plane(count=20), 20, member=join("other", servers=two.urls), **(code | options)
        )

    assert caught.value.status == 409


class Bad(Line):
    """One of its steps is no number."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def gradients(self, records: Any, lookup: servers.Lookup) -> servers.Gradients:
        """NaN in the third."""
        found = super().gradients(records, lookup)
        if len(self.losses) == 3:
            if self._what == "loss":
                return found._replace(metrics={"loss": float("nan")})
            return found._replace(dense={"w": np.full(3, np.inf)})
        return found


@pytest.mark.parametrize(("what", "named"), [("loss", "the loss"), ("w", "the gradient of 'w'")])
def test_what_is_no_number_fails_the_job(
    two: Servers, join: Join, server: Server, what: str, named: str
) -> None:
    """With trainer, step and parameter named, to the program and to the master."""
    with pytest.raises(servers.BadGradient, match="at step 3 of trainer t-7") as caught:
        servers.train(Bad(what), plane(), 20, member=join("t-7", servers=two.urls), **UNSAVED)

    assert str(caught.value).startswith(named)
    assert "step 3 of trainer t-7" in server.books.failed


@pytest.mark.parametrize("what", ["loss", "w"])
def test_what_is_no_number_may_be_skipped(
    two: Servers, join: Join, server: Server, what: str
) -> None:
    """It is counted here and at the servers, and the parameters do not have it."""
    result = servers.train(Bad(what), plane(), 20, on_nan="skip", member=join(servers=two.urls))
    status = two.all[0].server.tally.told()

    assert (result.steps, result.skipped, result.version) == (19, 1, 19)
    assert status["non_finite"]["newest"][0]["step"] == 3
    assert server.books.failed == ""


def test_pinned_versions_are_the_same_for_all(two: Servers, join: Join) -> None:
    """Whatever is trained meanwhile; until they are let go."""
    data = edl.from_arrays("words", *words())
    rules = servers.Rules(None, False, 0, 0.0, 3)
    one = servers.connect(Words(), rules=rules, member=join("one", servers=two.urls))
    two_ = servers.connect(Words(), rules=rules, member=join("two", servers=two.urls))
    ids = np.unique(words()[0])
    version = one.pin(5)
    before = one.lookup("words", ids)
    servers.train(Words(), data, 20, member=join("three", servers=two.urls), **UNSAVED)
    assert two_.pin(5) == version == 0
    seen = [each.pinned(5)["b"].tolist() for each in (one, two_)]
    rows = [each.lookup("words", ids, pin=5) for each in (one, two_)]
    assert seen == [[0.0], [0.0]]
    assert all(np.array_equal(each, before) for each in rows)
    assert not np.array_equal(one.lookup("words", ids), before)
    assert one.lookup("words", np.array([], int)).shape == (0, 1)
    one.unpin(5)
    with pytest.raises(servers.Declined, match="version 5 is not pinned"):
        two_.pinned(5)
    assert len(two_.status()) == 2
    one.close()
    two_.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on_nan": "ignore"}, "on_nan is 'ignore': write one of fail, skip"),
        ({"max_staleness": -1}, "max_staleness is -1: it must be at least 0"),
        ({"checkpoint_keep": 0}, "checkpoint_keep is 0: it must be at least 1"),
        ({"checkpoint_seconds": float("nan")}, "checkpoint_seconds is nan"),
    ],
)
def test_arguments_that_cannot_be_are_named(join: Join, options: dict[str, Any], said: str) -> None:
    """Before anybody is asked."""
    with pytest.raises(DataError, match=said):
        servers.train(Line(), plane(), 20, member=join(), **options)


def test_the_environment_must_name_the_servers_in_order(
    two: Servers, join: Join, tmp_path: Path
) -> None:
    """And those of this job."""
    other = Servers(tmp_path / "other", 1, job="letters")
    for urls, said in (
        ((), "EDL_PARAMETER_SERVERS is not set"),
        (two.urls[::-1], "is number 1 of 2|is number 0 of 2"),
        (two.urls[:1], "it is number 0 of 2"),
        (other.urls, "serves job 'letters', this trainer is of job 'digits'"),
    ):
        with pytest.raises(SettingError, match=said):
            servers.train(Line(), plane(), 20, member=join(servers=urls))
    other.stop()


def test_who_only_reads_waits_for_somebody_who_trains(
    two: Servers, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And has the parameters as soon as there are any."""
    first, waits = two.all[0].server, threading.Event()
    enter = first.enter

    def heard(body: Enter) -> dict[str, Any]:
        if body.wait_s:
            waits.set()
        return enter(body)

    monkeypatch.setattr(first, "enter", heard)
    member = join("reader", servers=two.urls, patience_s=60.0)
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(servers.fetch, member=member)
        assert waits.wait(60)
        servers.train(Line(), plane(count=20), 20, member=join(servers=two.urls))
        final = reader.result(20)

    assert set(final.dense) == {"w", "b"}


def test_who_only_reads_gives_up_after_its_patience(
    two: Servers, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody trains; it asks no server to wait for longer than that."""
    first, waits = two.all[0].server, list[float]()
    enter = first.enter

    def heard(body: Enter) -> dict[str, Any]:
        waits.append(body.wait_s)
        return enter(body)

    monkeypatch.setattr(first, "enter", heard)
    with pytest.raises(servers.Away, match=r"were not ready for 0\.2 s"):
        servers.fetch(member=join("reader", servers=two.urls, patience_s=0.2))

    assert 0 < max(waits) <= 0.2


class Odd(Line):
    """Says something that cannot be."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self._changes = changes

    def initial(self) -> Any:
        """As told."""
        return self._changes.get("initial", super().initial())

    def optimizer(self) -> dict[str, Any]:
        """As told."""
        return {**super().optimizer(), **self._changes.get("optimizer", {})}

    def gradients(self, records: Any, lookup: servers.Lookup) -> servers.Gradients:
        """As told."""
        if "table" in self._changes:
            lookup(self._changes["table"], np.array([1]))
        return super().gradients(records, lookup)._replace(**self._changes.get("gradients", {}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"initial": {}}, "there is nothing to train"),
        ({"initial": {"w": np.zeros(3, int)}}, "'w' is int64: parameters are floating point"),
        ({"initial": {"w": np.full(3, np.nan)}}, "'w' begins with NaN or infinity"),
        ({"optimizer": {"learning_rate": np.float32(1)}}, "optimizer: .*write numbers"),
        ({"gradients": {"dense": {"x": np.zeros(3)}}}, "no parameter 'x'; there are b, w"),
        (
            {"gradients": {"dense": {"w": np.zeros(4)}}},
            r"'w' has shape \[4\] and should have \[3\]",
        ),
        ({"gradients": {"dense": {"w": np.zeros(3, int)}}}, "'w' is int64"),
        ({"gradients": {"sparse": {"t": ([1], [[1.0]])}}}, "there is no table 't'"),
        ({"table": "t"}, "no table 't'; tables are: none"),
    ],
)
def test_a_worker_that_says_what_cannot_be_is_told(
    two: Servers, join: Join, changes: dict[str, Any], said: str
) -> None:
    """One line that names it."""
    with pytest.raises(DataError, match=said):
        servers.train(Odd(**changes), plane(), 20, member=join(servers=two.urls), **UNSAVED)


@pytest.mark.parametrize(
    ("ids", "rows", "said"),
    [
        ([1, 1], [[1.0], [1.0]], "names an id twice"),
        ([1], [[1.0, 2.0]], r"has rows \[1, 2\] for 1 ids of 1 numbers"),
        ([0.5], [[1.0]], "ids are float64"),
        ([[1]], [[1.0]], r"of shape \[1, 1\]"),
    ],
)
def test_rows_that_cannot_be_are_refused_here(
    two: Servers, join: Join, ids: Any, rows: Any, said: str
) -> None:
    """Before anything is sent."""
    found = servers.connect(
        Words(), rules=servers.Rules(None, False, 0, 0.0, 3), member=join(servers=two.urls)
    )
    with pytest.raises(DataError, match=said):
        found.push(servers.Gradients({}, {"words": (ids, rows)}, {}), 1, 1)
    with pytest.raises(servers.BadGradient, match="table 'words'"):
        found.push(servers.Gradients({}, {"words": ([1], [[np.nan]])}, {}), 1, 1)
    assert found.push(servers.Gradients({}, {"words": ([1], [[1.0]])}, {}), 1, 1).applied
    found.close()


def test_a_trainer_that_is_to_end_does_not_wait_for_servers(two: Servers, join: Join) -> None:
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
