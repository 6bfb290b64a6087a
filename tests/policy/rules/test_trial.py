"""Trials and what-ifs leave the book as it was."""

from policy.cluster.snapshot import ANYWHERE
from policy.document.model import Policy
from policy.document.queue_model import Quota
from policy.planning.book import Book
from policy.planning.free_capacity import NOWHERE
from policy.planning.plan import History
from policy.planning.rules.trial import Trial
from tests.support.builders import NOW_S, cluster_state, job, node, shape, trainers

_A = job("a", 1, 4)
_POLICY = Policy(quotas=(Quota(namespace="ml", requests={"cpu": "10"}),))


def _book() -> Book:
    pods = trainers(_A, ["n0"])
    return Book(cluster_state([node("n0", 20)], [_A], pods), _POLICY, NOW_S, History())


def test_a_trial_takes_its_reservations_back() -> None:
    """Inside the block the first pod takes capacity and quota from the second."""
    book = _book()
    before = dict(book.capacity.free_now("n0"))

    with Trial(book) as trial:
        first = trial.place(shape(12), ANYWHERE, NOWHERE, pooled=True)
        trial.count(_A, 1, 0)
        second = trial.place(shape(12), ANYWHERE, NOWHERE, pooled=True)
        is_allowed = book.quotas.allow(_A)

    assert (first is not None, second, is_allowed) == (True, None, False)
    assert dict(book.capacity.free_now("n0")) == before
    assert book.quotas.allow(_A)


def test_trainers_are_gone_from_quotas_only_inside_the_block() -> None:
    """A what-if counts live trainers as gone, and back."""
    book = _book()

    with book.quotas.without([(_A, book.entries[0].live)]):
        allowed = book.quotas.allow(_A, 2)

    assert allowed
    assert book.quotas.allow(_A, 1)
    assert not book.quotas.allow(_A, 2)


def test_pods_are_placed_one_after_the_other_and_not_reserved() -> None:
    """Two of three pods fit, and the node is as free as before."""
    book = _book()
    before = dict(book.capacity.free_now("n0"))

    nodes = book.capacity.place_each(
        shape(7), 3, lambda: book.capacity.cheapest_node(shape(7), ANYWHERE)
    )

    assert nodes == ["n0", "n0"]
    assert dict(book.capacity.free_now("n0")) == before
