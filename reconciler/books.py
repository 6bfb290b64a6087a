"""Keeps a job's books: each trainer id is counted in exactly one sum when its pod has ended.

Why a pod ended decides what follows: disrupted, or released by us, is never a failure.
"""

from collections.abc import Container, Iterable
from dataclasses import replace
from typing import Protocol

from policy import books as ledger
from policy.snapshot import Books, Phase, Pod

FORGET_FAILURES_S = 600.0
"""Failures further apart than this are not "in a row"."""


text = ledger.show


class Released(Protocol):
    """Who knows which pods we let go."""

    def was_released(self, uid: str) -> bool:
        """Whether it was us."""


def settle(
    books: Books,
    pods: Iterable[Pod],
    *,
    gone: Iterable[Pod],
    released: Released,
    coming: Container[int],
    master: bool = False,
) -> Books:
    """The books after a look at the pods that are there.

    Args:
        books: As they stand.
        pods: All trainer pods of the job that are there, ended ones included.
        gone: Trainer pods that have left since the books were written, as last seen.
        released: Knows the pods that we let go.
        coming: Ids whose pods are being made: not there yet, and not missing either.
        master: Whether the job's end is its master's word. A trainer that ends well is then one
            more for the back-off: should its master still have work, the next comes later.

    An open id whose pod is neither there nor coming has been disrupted: its node or somebody
    else took it away before we saw it end. A pod whose id the books do not know (they were
    edited, or lost) opens it again, so `next_id` never falls behind.
    """
    by_id = {pod.trainer_id: pod for pod in pods if pod.trainer_id >= 0}
    highest = max(by_id, default=-1)
    if highest >= books.next_id:
        unknown = {i for i in by_id if i >= books.next_id}
        books = replace(books, next_id=highest + 1, open=books.open | unknown)
    left = {pod.trainer_id: pod for pod in gone}
    early = ("failed", "succeeded") if master else ("failed",)
    for trainer_id in sorted(books.open):
        pod = by_id.get(trainer_id)
        if pod is not None:
            if pod.terminal:
                books = _close(books, trainer_id, _ending(pod, released), pod.ended_s, early)
        elif trainer_id in left:
            pod = left[trainer_id]
            books = _close(books, trainer_id, _ending(pod, released), pod.ended_s, early)
        elif trainer_id not in coming:
            books = _close(books, trainer_id, "disrupted")
    return books


def _ending(pod: Pod, released: Released) -> str:
    """In which sum a pod counts that has ended, or that left without being seen to end."""
    if pod.phase is Phase.SUCCEEDED:
        return "succeeded"
    if released.was_released(pod.uid):
        return "released"
    if pod.disrupted or pod.deleting or not pod.terminal:
        return "disrupted"
    return "failed"


def _close(
    books: Books,
    trainer_id: int,
    ending: str,
    ended_s: float = 0.0,
    early: Container[str] = (),
) -> Books:
    """The id counted as `ending`; those in `early` hold back the next trainer."""
    still_open = books.open - {trainer_id}
    books = replace(books, open=still_open, **{ending: getattr(books, ending) + 1})
    if ending not in early:
        return books
    in_row = ended_s - books.last_failure_s < FORGET_FAILURES_S
    return replace(
        books,
        failures_in_row=books.failures_in_row + 1 if in_row else 1,
        last_failure_s=max(books.last_failure_s, ended_s),
    )
