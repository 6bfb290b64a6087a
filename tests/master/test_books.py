"""What a master has after it died at a bad moment, or was told something bad."""

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kube.errors import Unavailable
from kube.fake import FakeApi
from kube.request import Request
from master import journal
from master.books import Books
from master.bounds import MOST_AHEAD
from master.errors import FencedError, JournalError, RefusedError
from master.fence import ConfigMapFence, Kept
from master.ledger import MOST_ATTEMPT, Ledger
from master.opening import books_of
from tests.master.books import ref, shape, who

Json = dict[str, Any]


@pytest.fixture(name="books")
def _books(tmp_path: Path) -> Iterator[Books]:
    """Of a job with 4 tasks and a trainer."""
    found = Books(Ledger("digits"), tmp_path / "journal")
    found.execute({"do": "describe", "name": "train", "shape": shape()})
    found.execute({"do": "join", **who("a")})
    found.write(found.take())
    yield found
    found.close()


def _again(books: Books, directory: Path) -> Books:
    """Another process, after a kill: what was not written is gone."""
    books.take()
    books.close()
    return Books(Ledger("digits"), directory)


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
    """Its journal holds no more than empty books: they must not replace the snapshot."""
    api = Away(0)
    old = books_of(Ledger("digits"), tmp_path / "1", ConfigMapFence(api, "ml", "m", "pod-1"))
    old.execute({"do": "describe", "name": "train", "shape": shape()})
    ConfigMapFence(api, "ml", "m", "pod-1").read()
    fence = ConfigMapFence(api, "ml", "m", "pod-1")
    fence.read()
    fence.write(1, old.ledger.dump(), "")
    old.close()
    api.left = 1
    fence = ConfigMapFence(api, "ml", "m", "pod-2")
    with pytest.raises(JournalError, match="cannot read"):
        books_of(Ledger("digits"), tmp_path / "2", fence)
    found = books_of(Ledger("digits"), tmp_path / "2", fence)
    found.close()

    assert list(found.ledger.datasets) == ["train"]
    assert found.ledger.generation == 2


class Busy(ConfigMapFence):
    """A place where the old master stores once more, between a taker's look and its claim."""

    def __init__(self, api: FakeApi, old: ConfigMapFence, books: Json, times: int) -> None:
        super().__init__(api, "ml", "m", "pod-2")
        self._old, self._books, self._times = old, books, times
        self.steps = 0

    def read(self) -> Kept:
        """See `Fence.read`."""
        found = super().read()
        if self._times:
            self._times -= 1
            self.steps += 1
            self._old.write(1, {**self._books, "steps": self.steps}, "")
        return found


@pytest.mark.parametrize("times", [1, 2])
def test_a_taker_goes_on_from_the_last_word_of_the_old_master(tmp_path: Path, times: int) -> None:
    """Even where it came between look and claim."""
    api = FakeApi()
    old = ConfigMapFence(api, "ml", "m", "pod-1")
    books = Ledger("digits").dump()
    old.write(1, books, "")
    fence = Busy(api, old, books, times)
    found = books_of(Ledger("digits"), tmp_path, fence)
    found.close()

    assert found.ledger.steps == fence.steps == times
    assert found.ledger.generation == 2
    with pytest.raises(FencedError):
        old.write(1, books, "")


class Overtaken(ConfigMapFence):
    """A place where another pod takes over, once, between this one's look and its claim."""

    def __init__(self, api: FakeApi, act: Callable[[], None]) -> None:
        super().__init__(api, "ml", "m", "pod-3")
        self._acts = [act]

    def read(self) -> Kept:
        """See `Fence.read`."""
        found = super().read()
        while self._acts:
            self._acts.pop()()
        return found


def test_of_two_pods_that_take_over_at_once_one_serves(tmp_path: Path) -> None:
    """Both make the same generation of the same snapshot: two that serve train records twice."""
    api = FakeApi()
    ConfigMapFence(api, "ml", "m", "pod-1").write(1, Ledger("digits").dump(), "")
    other = ConfigMapFence(api, "ml", "m", "pod-2")
    fence = Overtaken(api, lambda: books_of(Ledger("digits"), tmp_path / "2", other).close())
    books = books_of(Ledger("digits"), tmp_path / "3", fence)
    books.close()

    assert books.ledger.generation == 3
    with pytest.raises(FencedError, match="pod-3"):
        other.write(2, Ledger("digits").dump(), "")
    fence.write(3, books.ledger.dump(), "")


def test_a_master_that_writes_all_the_time_is_left_alone(tmp_path: Path) -> None:
    """It serves the job."""
    api = FakeApi()
    old = ConfigMapFence(api, "ml", "m", "pod-1")
    old.write(1, Ledger("digits").dump(), "")
    with pytest.raises(FencedError, match="pod-1 writes all the time"):
        books_of(Ledger("digits"), tmp_path, Busy(api, old, Ledger("digits").dump(), 99))


def test_what_cannot_be_written_changes_nothing(books: Books) -> None:
    """Such as a number that JSON readers would not understand."""
    before = books.ledger.dump()
    with pytest.raises(TypeError):
        books.execute({"do": "describe", "name": "x", "shape": shape(shuffle_seed=1 << 80)})

    assert books.ledger.dump() == before
    assert not books.waiting


def test_evaluations_that_nobody_does_do_not_fill_the_books(books: Books, tmp_path: Path) -> None:
    """One more than there is a place for is refused; a journal that holds more is replayed."""
    test = shape(kind="evaluation", epochs=1024)
    books.execute({"do": "describe", "name": "test", "shape": test})
    ask = {"do": "evaluate", "dataset": "test", "model_version": 1}
    with pytest.raises(RefusedError) as refused:
        books.execute(ask)
    assert (refused.value.status, refused.value.named) == (409, "dataset")
    books.write([*books.take(), journal.line(ask)])
    books = _again(books, tmp_path / "journal")
    dataset = books.ledger.datasets["test"]
    books.close()

    assert (dataset.epochs, dataset.crowded) == (1025, True)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ({"do": "term", "dataset": "train", "term": 0}, "term"),
        ({"do": "join", "lead": {"dataset": "train", "term": 0, "begins": False}}, "lead.term"),
        ({"do": "save", "newest": 0}, "newest"),
    ],
)
def test_a_number_that_no_master_can_have_given_out_is_refused(
    books: Books, command: Json, name: str
) -> None:
    """The next ones would be beyond what anybody may tell; smaller ones are believed."""
    before = books.ledger.dump()
    with pytest.raises(RefusedError) as refused:
        books.execute(_naming({**who("a"), **command}, name, MOST_AHEAD + 1))
    assert (refused.value.status, refused.value.named) == (422, name)
    assert books.ledger.dump() == before
    books.execute(_naming({**who("a"), **command}, name, MOST_AHEAD))
    dumped = books.ledger.dump()

    newest = max(dumped["versions"], dumped["datasets"]["train"]["terms"]["newest"])
    assert newest >= MOST_AHEAD
    books.execute(_naming({**who("a"), **command}, name, newest + MOST_AHEAD))


def _naming(command: Json, name: str, number: int) -> Json:
    """The command with a number in one field."""
    if name == "lead.term":
        return {**command, "lead": {**command["lead"], "term": number}}
    return {**command, name: number}


def test_a_lease_of_a_great_attempt_is_not_taken_over(books: Books) -> None:
    """Whoever gets the task later must be able to tell its attempt, which is greater."""
    held = [{"task": f"train/0/{n}", "attempt": MOST_ATTEMPT + n} for n in (0, 1)]
    answer = books.execute({"do": "join", **who("b"), "held": held})
    assert answer["lost"] == ["train/0/1"]
    books.execute({"do": "leave", **who("b")})
    leases = books.execute({"do": "work", **who("a"), "want": 4})["tasks"]

    assert sorted(lease["attempt"] for lease in leases) == [1, 1, 1, MOST_ATTEMPT + 1]


def test_a_metric_that_is_no_number_survives(tmp_path: Path) -> None:
    """Its mean is none; the others are as they were."""
    found = Books(Ledger("digits"), tmp_path)
    found.execute({"do": "describe", "name": "test", "shape": shape(kind="evaluation")})
    found.execute({"do": "join", **who("a")})
    leases = found.execute({"do": "work", **who("a"), "want": 4})["tasks"]
    metrics: list[Json] = [{"loss": 1.0}, {"loss": None, "acc": 0.5}, {"loss": 2.0}, {"x": 1e308}]
    done = [{**ref(one), "metrics": m} for one, m in zip(leases, metrics, strict=True)]
    found.execute({"do": "work", **who("a"), "done": done})
    found.write(found.take())
    found = _again(found, tmp_path)
    told = found.ledger.datasets["test"].rounds[0].told()
    found.close()

    assert told["metrics"] == {"loss": None, "acc": 0.5, "x": None}
    assert told["complete"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_call_that_waited_gives_its_tasks_to_whoever_repeats_it(
    books: Books, tmp_path: Path, restarts: bool
) -> None:
    """Twice at once, or after the master died before it could answer."""
    call = {**who("a"), "want": 2, "call": 1}
    first = books.execute({"do": "more", **call})
    books.write(books.take())
    if restarts:
        books = _again(books, tmp_path / "journal")
        second = books.execute({"do": "work", **call})
    else:
        second = books.execute({"do": "more", **call})
    held = books.ledger.members.find("a").held  # type: ignore[union-attr]  # it has joined
    books.close()

    assert second["tasks"] == first["tasks"]
    assert len(held) == 2


def test_a_call_that_waited_too_long_leases_nothing(books: Books) -> None:
    """Its client has gone on with the next one."""
    books.execute({"do": "work", **who("a"), "want": 1, "call": 2})
    late = books.execute({"do": "more", **who("a"), "want": 1, "call": 1})

    assert late["tasks"] == []


def test_a_journal_is_compacted_while_calls_wait(
    books: Books, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole books hold what waits: it is neither lost nor written twice."""
    monkeypatch.setattr(journal, "MOST_BYTES", 10)
    monkeypatch.setattr(books, "_compact_at", 10)
    books.execute({"do": "work", **who("a"), "want": 3, "call": 1})
    books.compact()
    waiting = books.waiting
    books = _again(books, tmp_path / "journal")
    held = books.ledger.members.find("a").held  # type: ignore[union-attr]  # it has joined
    books.close()

    assert not waiting
    assert len(held) == 3


def test_a_compaction_that_fails_refuses_nothing(
    books: Books, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal grows on."""
    monkeypatch.setattr(books, "_compact_at", 10)
    lease = books.execute({"do": "work", **who("a"), "want": 1, "call": 1})["tasks"][0]
    books.write(books.take())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        books.compact()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    books.execute({"do": "work", **who("a"), "done": [ref(lease)], "call": 2})
    books.write(books.take())
    books = _again(books, tmp_path / "journal")
    done = books.ledger.datasets["train"].totals.tasks
    books.close()

    assert done == 1


def test_a_journal_that_does_not_fit_its_books_is_named(books: Books, tmp_path: Path) -> None:
    """Files that were mixed up are no reason for a traceback."""
    books.close()
    newest = max((tmp_path / "journal").glob("journal-*.log"))
    newest.write_bytes(journal.line({"do": "work", **who("nobody"), "want": 1}))
    with pytest.raises(JournalError, match="does not fit its books"):
        Books(Ledger("digits"), tmp_path / "journal")


def test_books_that_make_no_sense_are_named(tmp_path: Path) -> None:
    """A snapshot that somebody edited, for one."""
    books = Books(Ledger("digits"), tmp_path)
    with pytest.raises(JournalError, match="make no sense"):
        books.inherited({"job": "digits", "version": 1})
    books.close()


def test_what_another_had_acknowledged_meanwhile_is_counted(books: Books) -> None:
    """A trainer comes late to a new master, with what it was told was accepted."""
    ledger = books.ledger
    ledger.execute({"do": "join", **who("b")})
    lease = ledger.execute({"do": "work", **who("b"), "want": 1})["tasks"][0]
    ledger.execute({"do": "work", **who("b"), "done": [ref(lease)]})
    late = {**ref(lease), "attempt": 0}
    for _ in range(2):
        ledger.execute({"do": "join", **who("a"), "done": [late]})

    assert ledger.trained_again_records == 10
