"""What queues may use of each other's nominal quotas."""

import pytest

from policy.document import parser as document
from policy.document.queue_model import Queue
from policy.errors import DocumentError
from policy.planning.borrowing import Borrowing
from tests.support.builders import shape


def _queue(name: str, cpu: int, limit: int | None = None) -> Queue:
    return Queue(
        name=name,
        namespaces=("*",),
        nominal_quota={"cpu": str(cpu)},
        borrowing_limit={} if limit is None else {"cpu": str(limit)},
    )


def _borrowing(**used: int) -> Borrowing:
    """Queues a, of 10 CPU, b, of 6 and at most 2 more, and c, which has none."""
    queues = [_queue("a", 10), _queue("b", 6, 2), _queue("c", 0)]
    borrowing = Borrowing([*queues, Queue(name="d", namespaces=("*",))])
    for queue, cpu in used.items():
        borrowing.count(queue, shape(cpu), 1)
    return borrowing


def test_a_queue_uses_what_others_leave_up_to_its_limit() -> None:
    """Without a limit up to all that is there."""
    assert _borrowing().allows("a", shape(16))
    assert not _borrowing().allows("a", shape(17))
    assert _borrowing().allows("b", shape(8))
    assert not _borrowing().allows("b", shape(9))
    assert not _borrowing(a=9, c=1).allows("b", shape(7))
    assert _borrowing(a=16).allows("b", {"memory": 1})


def test_a_queue_without_a_nominal_quota_is_not_bound() -> None:
    """It neither lends nor borrows."""
    borrowing = _borrowing(a=16, d=100)

    assert borrowing.allows("d", shape(999))
    assert borrowing.owns("d", shape(999))
    assert borrowing.room_for_minimum("d", shape(1), 5, {}) == 5
    assert borrowing.lack("d", shape(999)) == {}
    assert borrowing.exceeded("d") == borrowing.borrowed("d", ["cpu"]) == []
    assert not borrowing.relieves("a", shape(1), "d", shape(1))
    borrowing.claim("d", shape(1))
    assert not Borrowing([Queue(name="d", namespaces=("*",))])


def test_what_is_lacking_names_the_ceiling() -> None:
    """The queue's own, or that of all."""
    borrowing = _borrowing(a=9)

    assert borrowing.lack("b", shape(9)) == {
        "scope": "queue b",
        "resource": "cpu",
        "limit": "8",
        "short": "1",
    }
    assert borrowing.lack("a", shape(9))["scope"] == "all queues together"
    assert borrowing.lack("a", shape(7)) == {}


def test_minimums_have_the_nominal_quota_alone() -> None:
    """Whatever of it surplus uses now, and whatever others leave."""
    borrowing = _borrowing(b=8)
    borrowing.claim("b", shape(2))

    assert borrowing.room_for_minimum("b", shape(2), 5, {}) == 2
    assert borrowing.room_for_minimum("b", shape(2), 5, shape(1)) == 1
    assert borrowing.room_for_minimum("b", shape(2), 5, shape(5)) == 0
    assert borrowing.room_for_minimum("b", {"memory": 1}, 5, {}) == 5
    assert borrowing.lack_for_minimum("b", shape(5)) == {
        "scope": "queue b without borrowing",
        "resource": "cpu",
        "limit": "6",
        "short": "1",
    }


def test_another_queue_relieves_with_what_it_borrows() -> None:
    """Its own it keeps; a queue's own surplus always helps against its own ceiling."""
    cpu = shape(1)

    assert _borrowing(c=1, a=15).relieves("b", cpu, "c", cpu)
    assert _borrowing(c=1, a=15).relieves("b", cpu, "a", cpu)
    assert not _borrowing(c=6, a=10).relieves("b", cpu, "a", cpu)
    assert not _borrowing(c=6, a=9).relieves("b", cpu, "c", cpu)
    assert _borrowing(b=8).relieves("b", cpu, "b", cpu)
    assert _borrowing(a=16).relieves("a", cpu, "a", cpu)
    assert not _borrowing(c=1, a=15).relieves("b", cpu, "c", {"memory": 1})


def test_where_all_use_too_much_borrowers_give() -> None:
    """After a policy that has less, say."""
    borrowing = _borrowing(a=10, b=6, c=1)

    assert borrowing.exceeded("a") == borrowing.exceeded("b") == []
    assert borrowing.exceeded("c") == ["cpu"]
    assert _borrowing(b=9).exceeded("b") == ["cpu"]
    assert _borrowing(b=9, a=9).exceeded("b") == ["cpu"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            """queues:
            - {name: a, namespaces: [x], nominalQuota: {cpu: 1}}
            - {name: b, namespaces: [x], nominalQuota: {memory: 1Gi}}""",
            "nominalQuota of a or of b lacks cpu",
        ),
        (
            "queues: [{name: a, namespaces: [x], nominalQuota: {cpu: 1}, borrowingLimit: {memory: 1}}]",
            "borrowingLimit has memory and nominalQuota does not",
        ),
        ("queues: [{name: a, namespaces: [x], nominalQuota: {cpu: 5%}}]", "not a share"),
        ("queues: [{name: a, namespaces: [x], nominalQuota: {cpu: -1}}]", "negative"),
        ("queues: [{name: a, namespaces: [x], priority: -1}]", r"queues\.0\.priority"),
    ],
)
def test_a_policy_of_queues_that_cannot_lend_is_refused(text: str, message: str) -> None:
    """With the field and the way out."""
    with pytest.raises(DocumentError, match=message):
        document.parse(text)
