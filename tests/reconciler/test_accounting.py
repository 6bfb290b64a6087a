from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.cluster import trainer_accounting as ledger
from policy.cluster.failure_rules import FailureAction, FailureRule
from policy.cluster.snapshot import Phase, Pod, TrainerAccounting
from reconciler.jobs import accounting
from tests.support.builders import NOW_S, job, trainer
from tests.support.strategies import CALM

JOB = job("net")
OPEN = TrainerAccounting(next_id=1, open=frozenset({0}))


@dataclass
class Memory:
    """The pods that EDL released."""

    uids: set[str] = field(default_factory=set)

    def was_released(self, uid: str) -> bool:
        """As `Expectations` does."""
        return uid in self.uids


def _pod(number: int = 0, **fields: object) -> Pod:
    return replace(trainer(JOB, number, "n0"), **fields)  # type: ignore[arg-type]  # of any field


def _settle(
    before: TrainerAccounting,
    pods: tuple[Pod, ...] = (),
    *,
    deleted_pods: tuple[Pod, ...] = (),
    released: tuple[str, ...] = (),
    coming: tuple[int, ...] = (),
    master: bool = False,
) -> TrainerAccounting:
    memory = Memory(set(released))
    return accounting.count_endings(
        before, pods, deleted_pods=deleted_pods, released=memory, pending_ids=coming, master=master
    )


def test_a_running_trainer_stays_open() -> None:
    """Nothing is counted before it ends."""
    assert _settle(OPEN, (_pod(),)) == OPEN


@pytest.mark.parametrize(
    ("pod", "released", "ending"),
    [
        (_pod(phase=Phase.SUCCEEDED), False, "succeeded"),
        (_pod(phase=Phase.SUCCEEDED), True, "succeeded"),
        (_pod(phase=Phase.SUCCEEDED, deleting=True, deleted_s=50, ended_s=49), True, "succeeded"),
        (_pod(phase=Phase.SUCCEEDED, deleting=True, deleted_s=50, ended_s=50), True, "released"),
        (_pod(phase=Phase.SUCCEEDED, deleting=True, deleted_s=50, ended_s=52), False, "disrupted"),
        (_pod(phase=Phase.SUCCEEDED, deleting=True, deleted_s=50), False, "disrupted"),
        (_pod(phase=Phase.SUCCEEDED, disrupted=True), False, "disrupted"),
        (_pod(phase=Phase.FAILED), False, "failed"),
        (_pod(phase=Phase.FAILED), True, "released"),
        (_pod(phase=Phase.FAILED, disrupted=True), False, "disrupted"),
        (_pod(phase=Phase.FAILED, disrupted=True), True, "released"),
        (_pod(phase=Phase.FAILED, deleting=True), False, "disrupted"),
        (_pod(phase=Phase.FAILED, rejected=True, ran_s=0.0), False, "disrupted"),
    ],
)
@pytest.mark.parametrize("exists", [True, False])
def test_why_a_trainer_ended_decides_where_it_counts(
    pod: Pod, *, released: bool, ending: str, exists: bool
) -> None:
    """Whether its pod still exists or has been deleted: only its own failure counts as one."""
    uids = (pod.uid,) if released else ()
    after = (
        _settle(OPEN, (pod,), released=uids)
        if exists
        else _settle(OPEN, deleted_pods=(pod,), released=uids)
    )

    assert after.open == frozenset()
    assert {name: getattr(after, name) for name in ledger._SUMS if getattr(after, name)} == {  # noqa: SLF001 - the four sums by name
        ending: 1
    }


@pytest.mark.parametrize(("released", "ending"), [(True, "released"), (False, "disrupted")])
def test_a_pod_that_left_without_an_end_did_not_fail(*, released: bool, ending: str) -> None:
    """Its node went, or it never ran: nobody saw its containers end."""
    pod = _pod()
    after = _settle(OPEN, deleted_pods=(pod,), released=(pod.uid,) if released else ())

    assert getattr(after, ending) == 1
    assert after.failed == 0


def test_many_endings_are_counted_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant can write 20 000 open ids: a new set for each ending held the loop for 19 s."""
    ids = frozenset(range(20_000))
    copies: list[int] = []

    def counted(*args: TrainerAccounting, **fields: object) -> TrainerAccounting:
        copies.append(1)
        return replace(*args, **fields)

    monkeypatch.setattr(accounting, "replace", counted)
    after = _settle(TrainerAccounting(next_id=20_000, open=ids), (_pod(7),))

    assert after == TrainerAccounting(next_id=20_000, open=frozenset({7}), disrupted=19_999)
    assert len(copies) == 1


def test_an_id_whose_pod_never_came_is_disrupted() -> None:
    """A lost write must not leave it open for ever (docs/decisions/0002)."""
    assert _settle(OPEN) == TrainerAccounting(next_id=1, disrupted=1)


def test_an_id_that_is_coming_is_not_missed() -> None:
    """Its pod is being made."""
    assert _settle(OPEN, coming=(0,)) == OPEN


def test_counting_again_changes_nothing() -> None:
    """An ended pod stays for hours; it counts once."""
    ended = (_pod(phase=Phase.FAILED, ended_s=NOW_S),)
    once = _settle(OPEN, ended)

    assert _settle(once, ended) == once


def test_lost_books_never_hand_out_an_id_again() -> None:
    """Whatever the annotation contains, the next id is above the ids of all existing pods."""
    pods = (_pod(4), _pod(7, phase=Phase.FAILED))
    after = _settle(ledger.parse("nonsense"), pods)

    assert after.next_id == 8
    assert after.open == {4}
    assert after.failed == 1


def test_lost_books_know_the_first_trainer_again() -> None:
    """Its id, the lowest there is, is not handed out a second time."""
    assert _settle(TrainerAccounting(), (_pod(0),)) == TrainerAccounting(
        next_id=1, open=frozenset({0})
    )


def test_pods_without_an_id_are_nobodys() -> None:
    """A user's own pod with the job's labels is not counted."""
    assert _settle(TrainerAccounting(), (_pod(-1),)) == TrainerAccounting()


def test_failures_in_a_row_are_counted_for_the_back_off() -> None:
    """Two that are close together count as two; one long after starts a new count."""
    before = TrainerAccounting(next_id=3, open=frozenset({0, 1, 2}))
    close = [_pod(i, phase=Phase.FAILED, ended_s=NOW_S + i) for i in (0, 1)]
    two = _settle(before, (*close, _pod(2)))
    late = _pod(2, phase=Phase.FAILED, ended_s=NOW_S + 1000.0)
    three = _settle(two, (*close, late))

    assert (two.failures_in_row, two.last_failure_s) == (2, NOW_S + 1)
    assert (three.failed, three.failures_in_row) == (3, 1)


@pytest.mark.parametrize("rejected", [True, False])
def test_trainers_that_meet_a_failing_node_together_fail_once(*, rejected: bool) -> None:
    """One delay for all of them; only the first may be the job's fault."""
    before = TrainerAccounting(next_id=4, open=frozenset(range(4)))
    pods = [
        _pod(i, phase=Phase.FAILED, ended_s=NOW_S + i, ran_s=1.0, rejected=rejected)
        for i in range(4)
    ]
    after = _settle(before, tuple(pods))

    assert (after.failures_in_row, after.last_failure_s) == (1, NOW_S)
    assert (after.disrupted, after.failed, after.excused) == ((4, 0, 0) if rejected else (0, 4, 3))


@pytest.mark.parametrize(("created_s", "in_row"), [(NOW_S, 0), (NOW_S + 5.0, 1)])
def test_a_trainer_whose_room_was_given_away_is_replaced_at_once(
    created_s: float, in_row: int
) -> None:
    """Two schedulers may do that; where it happens again to a new trainer, the next one waits."""
    before = TrainerAccounting(next_id=2, open=frozenset({0, 1}))
    failed = {"phase": Phase.FAILED, "rejected": True, "lacked_room": True, "ran_s": 0.0}
    pods = (
        _pod(0, ended_s=NOW_S, **failed),
        replace(_pod(1, ended_s=created_s + 1.0, **failed), created_s=created_s),
    )
    after = _settle(before, pods)

    assert (after.disrupted, after.failed, after.failures_in_row) == (2, 0, in_row)


@pytest.mark.parametrize(("apart_s", "in_row"), [(599.0, 2), (600.0, 1)])
def test_failures_ten_minutes_apart_are_not_in_a_row(apart_s: float, in_row: int) -> None:
    """A job that fails now and then is not held back for it."""
    before = TrainerAccounting(next_id=2, open=frozenset({0, 1}))
    pods = [_pod(i, phase=Phase.FAILED, ended_s=NOW_S + i * apart_s) for i in (0, 1)]

    assert _settle(before, tuple(pods)).failures_in_row == in_row


def test_with_a_master_an_early_end_holds_back_the_next() -> None:
    """It is not a failure, but if the master still has work, the replacement is delayed."""
    ended = _pod(phase=Phase.SUCCEEDED, ended_s=NOW_S)
    plain = _settle(OPEN, (ended,))
    mastered = _settle(OPEN, deleted_pods=(ended,), master=True)

    assert (plain.succeeded, plain.failures_in_row) == (1, 0)
    assert (mastered.succeeded, mastered.failed) == (1, 0)
    assert (mastered.failures_in_row, mastered.last_failure_s) == (1, NOW_S)


def test_the_newest_failure_is_kept_whatever_the_order() -> None:
    """Ids end in any order; the back-off counts from the last end."""
    before = TrainerAccounting(next_id=2, open=frozenset({0, 1}))
    pods = (
        _pod(0, phase=Phase.FAILED, ended_s=NOW_S + 50),
        _pod(1, phase=Phase.FAILED, ended_s=NOW_S),
    )

    assert _settle(before, pods).last_failure_s == NOW_S + 50


class Life:
    """Trainers that start and end at random, and the accounting that follows them."""

    def __init__(self) -> None:
        self.accounting = TrainerAccounting()
        self.pods: dict[int, Pod] = {}
        self.deleted: list[Pod] = []
        self.pending: set[int] = set()
        self.memory = Memory()

    def act(self, action: str, pick: int) -> None:
        """One event; `pick` chooses whom it befalls."""
        if action == "reserve":
            self.accounting, ids = ledger.reserve(self.accounting, 1 + pick % 3)
            self.pending |= set(ids)
        elif action == "restart":
            self.accounting = ledger.parse(ledger.serialize(self.accounting))
            self.deleted, self.pending, self.memory = [], set(), Memory()
        elif action == "create" and self.pending:
            number = sorted(self.pending)[pick % len(self.pending)]
            self.pending.discard(number)
            self.pods[number] = _pod(number)
        elif action not in ("reserve", "create") and self.pods:
            number = sorted(self.pods)[pick % len(self.pods)]
            self._befall(action, number)

    def _befall(self, action: str, number: int) -> None:
        pod = self.pods[number]
        if action == "release":
            self.memory.uids.add(pod.uid)
        elif action == "leave":
            self.deleted.append(self.pods.pop(number))
        elif not pod.terminal:
            phase = Phase.SUCCEEDED if action == "succeed" else Phase.FAILED
            self.pods[number] = replace(pod, phase=phase, disrupted=action == "disrupt")

    def settle(self) -> None:
        """A look."""
        self.accounting = accounting.count_endings(
            self.accounting,
            self.pods.values(),
            deleted_pods=self.deleted,
            released=self.memory,
            pending_ids=self.pending,
        )


@pytest.mark.parametrize(
    ("action", "sums", "fatal"),
    [
        (FailureAction.IGNORE, (0, 1), False),
        (FailureAction.COUNT, (1, 0), False),
        (FailureAction.FAIL_JOB, (1, 0), True),
    ],
)
def test_a_rule_decides_what_a_failure_is(
    action: FailureAction, sums: tuple[int, int], *, fatal: bool
) -> None:
    """Whatever it is, the next trainer is delayed: an ignored failure may come again at once."""
    rules = (FailureRule(action, codes=frozenset({42})),)
    pod = _pod(phase=Phase.FAILED, exits=(("main", 42),), ended_s=NOW_S)
    after = accounting.count_endings(
        OPEN, (pod,), deleted_pods=(), released=Memory(), pending_ids=(), rules=rules
    )

    assert (after.failed, after.disrupted) == sums
    assert (after.failures_in_row, bool(after.fatal)) == (1, fatal)


@pytest.mark.parametrize("fields", [{"disrupted": True}, {"deleting": True}])
def test_no_rule_is_asked_about_a_disruption(fields: dict[str, bool]) -> None:
    """It may end with any code, and the job goes on."""
    rules = (FailureRule(FailureAction.FAIL_JOB, codes=frozenset({42})),)
    pod = _pod(phase=Phase.FAILED, exits=(("main", 42),), **fields)
    after = accounting.count_endings(
        OPEN, (pod,), deleted_pods=(), released=Memory(), pending_ids=(), rules=rules
    )

    assert (after.disrupted, after.fatal) == (1, "")


_EVENTS = ("reserve", "create", "succeed", "fail", "disrupt", "release", "leave", "restart")


@CALM
@given(st.lists(st.tuples(st.sampled_from(_EVENTS), st.integers(0, 20), st.booleans())))
def test_each_id_is_counted_exactly_once(events: list[tuple[str, int, bool]]) -> None:
    """In whatever order things happen, with a look after each or not, and through restarts."""
    life, closed, sums = Life(), frozenset[int](), 0
    for action, pick, look in events:
        life.act(action, pick)
        if look:
            life.settle()
        now = life.accounting
        counted = now.succeeded + now.failed + now.disrupted + now.released
        assert now.next_id == len(now.open) + counted
        assert counted >= sums
        assert not closed & now.open
        closed, sums = frozenset(range(now.next_id)) - now.open, counted
