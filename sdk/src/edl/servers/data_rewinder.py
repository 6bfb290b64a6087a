"""Keeps the master's ledger of a data set consistent with the servers' model; decision 0032."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from edl.errors import MasterError, Refused
from edl.master.heartbeat import is_replaced
from edl.master.protocol import Json
from edl.master.session import Session

log = logging.getLogger("edl")
_BEGINNING = "parameter servers start from initial parameters"


@dataclass(frozen=True)
class DataTarget:
    """The position to which the data is rewound: that of a checkpoint, or the beginning."""

    event: str
    """Name of the rollback, the same as in reports of lost batches."""
    reason: str
    generation: int
    """The generation that will start from this position."""
    ticket: int
    version: int = 0
    """The version of the parameters."""
    ledger: Json | None = None
    """A position of the master's ledger; None for the beginning of the data."""
    remaining: Json = field(default_factory=dict)
    """Task -> number of its records that the parameters have not seen."""


class DataRewinder:
    """Queries the position in a data set, and rewinds the data set to an earlier one."""

    def __init__(self, member: Session, dataset: str, description: Json) -> None:
        """Makes no call yet.

        Args:
            member: This trainer's session.
            dataset: Name of the data set.
            description: Description of the data set for the master.
        """
        self._member, self._dataset, self._description = member, dataset, description

    def newest_generation(self) -> int:
        """Returns the newest generation of servers for which the data was rewound; 0 with an older master.

        New generations must have higher numbers, and servers that have lost their files do not know the
        number, so this retries until the master answers.

        Raises:
            MasterError: The data set is described differently, or the master is away for too long.
        """
        self._member.describe(self._dataset, self._description)
        try:
            answer = self._member.retry_while_away(lambda: self._ask(()))
        except Refused as error:
            log.info("the position in the data is unknown: %s", error)
            return 0
        return int(answer["generation"])

    def position(self, tasks: Sequence[str] = ()) -> Json | None:
        """Returns the ledger's position; None if the master does not answer or is too old.

        Args:
            tasks: Tasks to check; the answer names those that are settled.
        """
        try:
            return self._ask(tasks)
        except MasterError as error:
            log.info("the position in the data is unknown: %s", error)
            return None

    def _ask(self, tasks: Sequence[str]) -> Json:
        client = self._member.client()
        try:
            return client.position(self._dataset, tasks)
        finally:
            client.close()

    def rewind(self, target: DataTarget) -> bool:
        """Rewinds the data before the servers start a generation; returns whether that succeeded.

        Raises:
            Refused: A newer process has this trainer's name.
        """
        body: Json = {
            "event": target.event,
            "reason": target.reason or _BEGINNING,
            "version": target.version,
            "position": target.ledger,
            "remaining": target.remaining,
            "generation": target.generation,
            "ticket": target.ticket,
        }
        call = self._member.control().rewind
        try:
            answer = self._member.retry_while_away(lambda: call(self._dataset, body))
        except MasterError as error:
            if isinstance(error, Refused) and is_replaced(error):
                raise
            log.warning("could not rewind the data with the parameters: %s", error)
            return False
        self._end_leases(answer)
        if answer.get("records"):
            log.warning("data rewound: %s records are trained again", answer["records"])
        return True

    def drop_ended_leases(self) -> None:
        """Drops the leases that ended because another trainer rewound the data."""
        answer = self.position()
        if answer is not None:
            self._end_leases(answer)

    def _end_leases(self, answer: Json) -> None:
        self._member.lease_table.rewind(self._dataset, int(answer["base"]))
