"""Which batches of this trainer are lost when servers go back to a checkpoint. Pure.

A trainer pushes its batches one after another, each under a higher number than the one before, and
each server keeps the newest number that is in its part. So what a server that went back still holds
of this trainer is known exactly. A batch that only some servers still hold is lost: the model is
never again the one that it made.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Json = dict[str, Any]


class Lost(NamedTuple):
    """What one setback cost this trainer."""

    steps: int
    """Batches that all servers had acknowledged, and that one of them has not any more."""
    records: int
    pending_steps: int
    """1 where a batch was on its way: some servers may have applied it, and it comes again."""
    pending_records: int


class Pushes:
    """This trainer's: what all servers have acknowledged, and what is on its way."""

    def __init__(self) -> None:
        self._runs: list[list[int]] = []
        """[first number, last number, records of each], oldest first."""
        self._pending = (0, 0)
        """Number and records of the batch that is on its way; (0, 0) where none is."""

    def begin(self, number: int, records: int) -> None:
        """A batch is about to be sent."""
        self._pending = (number, records)

    def acknowledge(self, number: int, records: int) -> None:
        """All servers have a batch; one that was acknowledged before changes nothing."""
        self._pending = (0, 0)
        if self._runs and number <= self._runs[-1][1]:
            return
        if self._runs and self._runs[-1][1:] == [number - 1, records]:
            self._runs[-1][1] = number
        else:
            self._runs.append([number, number, records])

    def go_back(self, held: list[int]) -> Lost:
        """The servers went back.

        Args:
            held: The newest number of this trainer that each server holds now; 0 where it has none.

        Returns:
            What is lost by that; it is forgotten here, so it is never counted again.
        """
        newest, steps, records = min(held), 0, 0
        while self._runs and self._runs[-1][1] > newest:
            first, last, each = self._runs[-1]
            gone = last - max(first - 1, newest)
            steps, records = steps + gone, records + gone * each
            if gone == last - first + 1:
                self._runs.pop()
            else:
                self._runs[-1][1] = newest
        number, size = self._pending
        self._pending = (0, 0)
        pending = number > held[0]
        return Lost(steps, records, int(pending), size if pending else 0)


class Word(NamedTuple):
    """A setback, as the master is to hear of it."""

    event: str
    """The generation that ended."""
    reason: str
    steps: int
    """Lost in all, as far as server 0 knows."""
    records: int
    share: Json
    """What of it is this trainer's."""


def word(ended: int, setback: Json | None, lost: Lost, holder: str) -> Word:
    """What to tell the master.

    Args:
        ended: The generation that this trainer was in.
        setback: What server 0 says of its end; None where it does not know any more.
        lost: What it cost this trainer.
        holder: Names this trainer's process.
    """
    whole = setback or {"reason": "parameter servers began anew", "steps": 0, "records": 0}
    share = {"holder": holder, **lost._asdict()}
    return Word(f"generation-{ended}", whole["reason"], whole["steps"], whole["records"], share)
