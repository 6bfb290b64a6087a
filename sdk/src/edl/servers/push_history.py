"""Computes which batches of this trainer were lost in a rollback of the servers. Pure.

A trainer numbers its batches, and each server stores the newest number that its shard contains, so the
batches that a restored server still contains are known exactly. A batch that only some servers contain
counts as lost, because the model lacks part of it.
"""

from __future__ import annotations

from typing import NamedTuple

from edl_protocol.fields import Json
from edl_protocol.master import RollbackShare


class RollbackLoss(NamedTuple):
    """The batches that this trainer lost in one rollback."""

    steps: int
    """Batches that all servers had acknowledged and at least one server has lost."""
    records: int
    """Records of these batches."""
    pending_steps: int
    """1 if a batch was in flight: some servers may have applied it, and it is pushed again."""
    pending_records: int
    """Records of the batch in flight."""


class PushHistory:
    """This trainer's pushes: the pushes that all servers have acknowledged, and the one in flight."""

    def __init__(self) -> None:
        self._runs: list[list[int]] = []
        """[first number, last number, records per batch] of consecutive batches, oldest first."""
        self._pending = (0, 0)
        """Number and records of the batch in flight; (0, 0) if there is none."""

    def begin(self, number: int, records: int) -> None:
        """Records that a batch is about to be sent."""
        self._pending = (number, records)

    def acknowledge(self, number: int, records: int) -> None:
        """Records that all servers have applied a batch; has no effect if this is already known."""
        self._pending = (0, 0)
        if self._runs and number <= self._runs[-1][1]:
            return
        if self._runs and self._runs[-1][1:] == [number - 1, records]:
            self._runs[-1][1] = number
        else:
            self._runs.append([number, number, records])

    def roll_back(self, newest_numbers: list[int]) -> RollbackLoss:
        """Counts the batches lost in a rollback, and removes them so that they count only once.

        Args:
            newest_numbers: For each server, the number of this trainer's newest batch, or 0.
        """
        newest, steps, records = min(newest_numbers), 0, 0
        while self._runs and self._runs[-1][1] > newest:
            first, last, batch_records = self._runs[-1]
            lost_steps = last - max(first - 1, newest)
            steps, records = steps + lost_steps, records + lost_steps * batch_records
            if lost_steps == last - first + 1:
                self._runs.pop()
            else:
                self._runs[-1][1] = newest
        number, size = self._pending
        self._pending = (0, 0)
        pending = number > newest_numbers[0]
        return RollbackLoss(steps, records, int(pending), size if pending else 0)


class RollbackReport(NamedTuple):
    """A rollback of the servers, as this trainer reports it to the master."""

    event: str
    """Name of the generation that ended."""
    reason: str
    steps: int
    """Batches lost by all trainers, as far as server 0 knows."""
    records: int
    """Records of these batches."""
    share: RollbackShare
    """This trainer's share of the lost batches."""


def rollback_report(
    ended: int, rollback: Json | None, lost: RollbackLoss, holder: str
) -> RollbackReport:
    """Builds the report for the master.

    Args:
        ended: The generation that ended.
        rollback: Server 0's description of the rollback; None if it no longer has one.
        lost: The batches that this trainer lost.
        holder: Id of this trainer's process.
    """
    total = rollback or {"reason": "parameter servers restarted", "steps": 0, "records": 0}
    share = RollbackShare(
        holder, lost.steps, lost.records, lost.pending_steps, lost.pending_records
    )
    return RollbackReport(
        f"generation-{ended}", total["reason"], total["steps"], total["records"], share
    )
