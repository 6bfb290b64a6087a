"""The ledger after a crash at a bad moment, and after bad commands."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kube.errors import Unavailable
from kube.request import Request
from lab.fake_api import FakeApi
from master import journal
from master.bounds import MAX_AHEAD
from master.commands import (
    Describe,
    Evaluate,
    Join,
    Lead,
    Leave,
    More,
    Save,
    Term,
    Work,
    from_json,
    to_json,
)
from master.durable_ledger import DurableLedger
from master.errors import FencedError, JournalError
from master.fence import ConfigMapFence, StoredSnapshot
from master.ledger import Ledger
from master.startup import open_ledger
from master.takeover import MAX_ATTEMPT
from runtime.call_checks import Json, RefusedError
from tests.master.ledger_calls import ref, shape, who
from tests.support.full_disks import files_up_to


@pytest.fixture(name="durable_ledger")
def _durable_ledger(tmp_path: Path) -> Iterator[DurableLedger]:
    """The ledger of a job with 4 tasks and a trainer."""
    durable_ledger = DurableLedger(Ledger("digits"), tmp_path / "journal")
    durable_ledger.execute(Describe("train", shape()))
    durable_ledger.execute(Join(**who("a")))
    durable_ledger.write(durable_ledger.take_pending())
    yield durable_ledger
    durable_ledger.close()


def _again(durable_ledger: DurableLedger, directory: Path) -> DurableLedger:
    """Another process, after a kill: what was not written is lost."""
    durable_ledger.take_pending()
    durable_ledger.close()
    return DurableLedger(Ledger("digits"), directory)


class Away(FakeApi):
    """An API server that cannot be reached for its first calls."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.left = calls

    def send(self, request: Request) -> bytes:
        """See `Api.send`."""
        if self.left:
            self.left -= 1
            raise Unavailable("connection refused")
        return super().send(request)


def test_a_pod_that_was_begun_before_the_cluster_answered_is_still_new(tmp_path: Path) -> None:
    """Its journal holds an empty ledger, which must not replace the snapshot."""
    api = Away(0)
    old = open_ledger(Ledger("digits"), tmp_path / "1", ConfigMapFence(api, "ml", "m", "pod-1"))
    old.execute(Describe("train", shape()))
    ConfigMapFence(api, "ml", "m", "pod-1").read()
    fence = ConfigMapFence(api, "ml", "m", "pod-1")
    fence.read()
    fence.write(1, old.ledger.dump(), "")
    old.close()
    api.left = 1
    fence = ConfigMapFence(api, "ml", "m", "pod-2")
    with pytest.raises(JournalError, match="cannot read"):
        open_ledger(Ledger("digits"), tmp_path / "2", fence)
    durable_ledger = open_ledger(Ledger("digits"), tmp_path / "2", fence)
    durable_ledger.close()

    assert list(durable_ledger.ledger.datasets) == ["train"]
    assert durable_ledger.ledger.generation == 2


class Busy(ConfigMapFence):
    """A fence at which the old master stores once more, between a new one's read and its claim."""

    def __init__(self, api: FakeApi, old: ConfigMapFence, state: Json, times: int) -> None:
        super().__init__(api, "ml", "m", "pod-2")
        self._old, self._state, self._times = old, state, times
        self.steps = 0

    def read(self) -> StoredSnapshot:
        """See `Fence.read`."""
        stored = super().read()
        if self._times:
            self._times -= 1
            self.steps += 1
            self._old.write(1, {**self._state, "steps": self.steps}, "")
        return stored


@pytest.mark.parametrize("times", [1, 2])
def test_a_takeover_resumes_from_the_newest_snapshot_of_the_old_master(
    tmp_path: Path, times: int
) -> None:
    """Also where that was stored between read and claim."""
    api = FakeApi()
    old = ConfigMapFence(api, "ml", "m", "pod-1")
    state = Ledger("digits").dump()
    old.write(1, state, "")
    fence = Busy(api, old, state, times)
    durable_ledger = open_ledger(Ledger("digits"), tmp_path, fence)
    durable_ledger.close()

    assert durable_ledger.ledger.steps == fence.steps == times
    assert durable_ledger.ledger.generation == 2
    with pytest.raises(FencedError):
        old.write(1, state, "")


class Overtaken(ConfigMapFence):
    """A fence at which another pod takes over, once, between this one's read and its claim."""

    def __init__(self, api: FakeApi, act: Callable[[], None]) -> None:
        super().__init__(api, "ml", "m", "pod-3")
        self._acts = [act]

    def read(self) -> StoredSnapshot:
        """See `Fence.read`."""
        stored = super().read()
        while self._acts:
            self._acts.pop()()
        return stored


def test_of_two_pods_that_take_over_at_once_one_serves(tmp_path: Path) -> None:
    """Both make the same generation of one snapshot: if both served, records were trained twice."""
    api = FakeApi()
    ConfigMapFence(api, "ml", "m", "pod-1").write(1, Ledger("digits").dump(), "")
    other = ConfigMapFence(api, "ml", "m", "pod-2")
    fence = Overtaken(api, lambda: open_ledger(Ledger("digits"), tmp_path / "2", other).close())
    durable_ledger = open_ledger(Ledger("digits"), tmp_path / "3", fence)
    durable_ledger.close()

    assert durable_ledger.ledger.generation == 3
    with pytest.raises(FencedError, match="pod-3"):
        other.write(2, Ledger("digits").dump(), "")
    fence.write(3, durable_ledger.ledger.dump(), "")


def test_a_master_that_keeps_writing_is_not_replaced(tmp_path: Path) -> None:
    """It serves the job."""
    api = FakeApi()
    old = ConfigMapFence(api, "ml", "m", "pod-1")
    old.write(1, Ledger("digits").dump(), "")
    with pytest.raises(FencedError, match="pod-1 keeps writing snapshots"):
        open_ledger(Ledger("digits"), tmp_path, Busy(api, old, Ledger("digits").dump(), 99))


def test_what_cannot_be_written_changes_nothing(durable_ledger: DurableLedger) -> None:
    """For example a number that JSON readers would not understand."""
    before = durable_ledger.ledger.dump()
    with pytest.raises(TypeError):
        durable_ledger.execute(Describe("x", shape(shuffle_seed=1 << 80)))

    assert durable_ledger.ledger.dump() == before
    assert not durable_ledger.has_pending


def test_pending_evaluations_do_not_fill_the_ledger(
    durable_ledger: DurableLedger, tmp_path: Path
) -> None:
    """One more than the limit is refused; a journal that holds more is replayed."""
    test = shape(kind="evaluation", epochs=1024)
    durable_ledger.execute(Describe("test", test))
    ask = Evaluate(1, "test")
    with pytest.raises(RefusedError) as refused:
        durable_ledger.execute(ask)
    assert (refused.value.status, refused.value.field) == (409, "dataset")
    durable_ledger.write([*durable_ledger.take_pending(), journal.line(to_json(ask))])
    durable_ledger = _again(durable_ledger, tmp_path / "journal")
    dataset = durable_ledger.ledger.datasets["test"]
    durable_ledger.close()

    assert (dataset.epochs, dataset.evaluations_full) == (1025, True)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (Term(**who("a"), dataset="train", term=0), "term"),
        (Join(**who("a"), lead=Lead("train", 0, begins=False)), "lead.term"),
        (Save(**who("a"), newest=0), "newest"),
    ],
)
def test_a_number_that_no_master_can_have_assigned_is_refused(
    durable_ledger: DurableLedger, command: Term | Join | Save, name: str
) -> None:
    """The next ones would exceed what callers may report; smaller ones are accepted."""
    before = durable_ledger.ledger.dump()
    with pytest.raises(RefusedError) as refused:
        durable_ledger.execute(_naming(command, MAX_AHEAD + 1))
    assert (refused.value.status, refused.value.field) == (422, name)
    assert durable_ledger.ledger.dump() == before
    durable_ledger.execute(_naming(command, MAX_AHEAD))
    dumped = durable_ledger.ledger.dump()

    newest = max(dumped["versions"], dumped["datasets"]["train"]["terms"]["newest"])
    assert newest >= MAX_AHEAD
    durable_ledger.execute(_naming(command, newest + MAX_AHEAD))


def _naming(command: Term | Join | Save, number: int) -> Term | Join | Save:
    """The command with another number in its field."""
    match command:
        case Join():
            return replace(command, lead=Lead("train", number, begins=False))
        case Term():
            return replace(command, term=number)
        case Save():
            return replace(command, newest=number)


def test_a_lease_of_a_great_attempt_is_not_taken_over(durable_ledger: DurableLedger) -> None:
    """The next holder must be able to report its own attempt, which is greater."""
    granted = [{"task": f"train/0/{n}", "attempt": MAX_ATTEMPT + n} for n in (0, 1)]
    answer = durable_ledger.execute(from_json({"do": "join", **who("b"), "held": granted}))
    assert answer["lost"] == ["train/0/1"]
    durable_ledger.execute(Leave(**who("b")))
    leases = durable_ledger.execute(Work(**who("a"), want=4))["tasks"]

    assert sorted(lease["attempt"] for lease in leases) == [1, 1, 1, MAX_ATTEMPT + 1]


def test_a_metric_that_is_not_finite_survives(tmp_path: Path) -> None:
    """Its mean is null; the others do not change."""
    durable_ledger = DurableLedger(Ledger("digits"), tmp_path)
    durable_ledger.execute(Describe("test", shape(kind="evaluation")))
    durable_ledger.execute(Join(**who("a")))
    leases = durable_ledger.execute(Work(**who("a"), want=4))["tasks"]
    metrics: list[Json] = [{"loss": 1.0}, {"loss": None, "acc": 0.5}, {"loss": 2.0}, {"x": 1e308}]
    done = [{**ref(lease), "metrics": m} for lease, m in zip(leases, metrics, strict=True)]
    durable_ledger.execute(from_json({"do": "work", **who("a"), "done": done}))
    durable_ledger.write(durable_ledger.take_pending())
    durable_ledger = _again(durable_ledger, tmp_path)
    evaluation = durable_ledger.ledger.datasets["test"].evaluations[0].to_json()
    durable_ledger.close()

    assert evaluation["metrics"] == {"loss": None, "acc": 0.5, "x": None}
    assert evaluation["complete"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_call_that_waited_gives_its_tasks_to_whoever_repeats_it(
    durable_ledger: DurableLedger, tmp_path: Path, restarts: bool
) -> None:
    """Twice at once, or after the master died before it could answer."""
    call = {**who("a"), "want": 2, "call": 1}
    first = durable_ledger.execute(from_json({"do": "more", **call}))
    durable_ledger.write(durable_ledger.take_pending())
    if restarts:
        durable_ledger = _again(durable_ledger, tmp_path / "journal")
        second = durable_ledger.execute(from_json({"do": "work", **call}))
    else:
        second = durable_ledger.execute(from_json({"do": "more", **call}))
    leases = durable_ledger.ledger.trainers.find("a").leases  # type: ignore[union-attr]  # it has joined
    durable_ledger.close()

    assert second["tasks"] == first["tasks"]
    assert len(leases) == 2


def test_a_call_that_waited_too_long_leases_nothing(durable_ledger: DurableLedger) -> None:
    """Its client has continued with the next one."""
    durable_ledger.execute(Work(**who("a"), want=1, call=2))
    late = durable_ledger.execute(More(**who("a"), want=1, call=1))

    assert late["tasks"] == []


def test_a_journal_is_compacted_while_calls_wait(
    durable_ledger: DurableLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot includes commands that wait: they are neither lost nor written twice."""
    monkeypatch.setattr(journal, "MAX_BYTES", 10)
    monkeypatch.setattr(durable_ledger, "_compact_at", 10)
    durable_ledger.execute(Work(**who("a"), want=3, call=1))
    durable_ledger.compact()
    waiting = durable_ledger.has_pending
    durable_ledger = _again(durable_ledger, tmp_path / "journal")
    leases = durable_ledger.ledger.trainers.find("a").leases  # type: ignore[union-attr]  # it has joined
    durable_ledger.close()

    assert not waiting
    assert len(leases) == 3


def test_a_compaction_that_fails_refuses_nothing(
    durable_ledger: DurableLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal continues to grow."""
    monkeypatch.setattr(durable_ledger, "_compact_at", 10)
    lease = durable_ledger.execute(Work(**who("a"), want=1, call=1))["tasks"][0]
    durable_ledger.write(durable_ledger.take_pending())
    with files_up_to(10):
        error = durable_ledger.compact()
    durable_ledger.execute(from_json({"do": "work", **who("a"), "done": [ref(lease)], "call": 2}))
    durable_ledger.write(durable_ledger.take_pending())
    durable_ledger = _again(durable_ledger, tmp_path / "journal")
    done = durable_ledger.ledger.datasets["train"].totals.tasks
    durable_ledger.close()

    assert done == 1
    assert error is not None
    assert "cannot write" in error


def test_a_master_that_ends_with_a_write_that_failed_writes_nothing_after_it(
    durable_ledger: DurableLedger, tmp_path: Path
) -> None:
    """A disk that is full for many commands may have room for the few that came later."""
    durable_ledger.execute(Join(**who("b")))
    lines = durable_ledger.take_pending()
    with files_up_to(10), pytest.raises(JournalError, match="cannot write"):
        durable_ledger.write(lines)
    durable_ledger.execute(Work(**who("b"), want=1, call=1))
    durable_ledger.close()
    again = DurableLedger(Ledger("digits"), tmp_path / "journal")
    names = [trainer.name for trainer in again.ledger.trainers]
    again.close()

    assert names == ["a"]


def test_a_journal_that_does_not_fit_its_snapshot_is_named(
    durable_ledger: DurableLedger, tmp_path: Path
) -> None:
    """Files that were mixed up cause an error without a traceback."""
    durable_ledger.close()
    newest = max((tmp_path / "journal").glob("journal-*.log"))
    newest.write_bytes(journal.line({"do": "work", **who("nobody"), "want": 1}))
    with pytest.raises(JournalError, match="does not fit its snapshot"):
        DurableLedger(Ledger("digits"), tmp_path / "journal")


def test_a_snapshot_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    """For example a snapshot that was edited by hand."""
    durable_ledger = DurableLedger(Ledger("digits"), tmp_path)
    with pytest.raises(JournalError, match="is inconsistent"):
        durable_ledger.load_next_generation({"job": "digits", "version": 1})
    durable_ledger.close()


def test_what_another_had_acknowledged_meanwhile_is_counted(durable_ledger: DurableLedger) -> None:
    """A trainer reports an accepted task late to a new master."""
    ledger = durable_ledger.ledger
    ledger.execute(Join(**who("b")))
    lease = ledger.execute(Work(**who("b"), want=1))["tasks"][0]
    ledger.execute(from_json({"do": "work", **who("b"), "done": [ref(lease)]}))
    late = {**ref(lease), "attempt": 0}
    for _ in range(2):
        ledger.execute(from_json({"do": "join", **who("a"), "done": [late]}))

    assert ledger.trained_again_records == 10
