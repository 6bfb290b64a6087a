"""All parameter servers of a job, as a trainer sees them: pulls, and pushes gradients."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from edl import clock
from edl.errors import DataError, MasterError
from edl.servers.errors import BadGradient, ServersError
from edl.servers.frames import Frame, encode
from edl.servers.layout import split
from edl.servers.link import Link
from edl.servers.losses import Pushes, Word, word
from edl.servers.model import Model
from edl.servers.reader import Json, Reader, checked_ids
from edl.servers.saving import Saver, save
from edl.servers.worker import Gradients
from edl.session import Session

log = logging.getLogger("edl")

_SAVED_S = 20.0
_TELL_EVERY_S = 2.0
"""Between two tries to tell the master what was lost."""


class Pushed(NamedTuple):
    """What became of a push."""

    applied: bool
    """False where one of the servers found it too stale: pull, and compute again."""
    staleness: int
    """Versions that were made meanwhile; the most of all servers."""


class Servers(Reader):
    """Used by one thread. `enter` comes first, and after each `Moved`."""

    def __init__(self, member: Session, model: Model) -> None:
        super().__init__(member, model)
        self._saver = Saver(self._connect)
        self._number = 0
        self._pushes = Pushes()
        self._untold: list[Word] = []
        self._tell_at_s = 0.0
        self.lost_steps, self.lost_records = 0, 0
        """Of this trainer's own batches, by servers that went back."""

    def close(self) -> None:
        """Waits for a checkpoint that is being written, and ends all connections."""
        self._saver.finish(0.0 if self._member.exits else _SAVED_S)
        super().close()

    def tell(self) -> None:
        """Tells the master what was lost, where it has not heard of it yet.

        It may be away as servers were, or be another one that does not know this trainer yet.
        """
        while self._untold:
            event, reason, steps, records, share = self._untold[0]
            control = self._member.control()
            try:
                control.setback(event, reason, steps=steps, records=records, share=share)
            except MasterError as error:
                log.warning("the master has not heard yet of what was lost: %s", error)
                self._tell_at_s = clock.monotonic_s() + _TELL_EVERY_S
                return
            del self._untold[0]

    def next_number(self) -> int:
        """Of the next batch; all tries of one batch have the same."""
        self._number += 1
        return self._number

    def push(self, gradients: Gradients, number: int, records: int, *, want: bool = True) -> Pushed:
        """Sends gradients of the parameters in `dense`; at each server they are applied once.

        Args:
            gradients: Of one batch.
            number: As `next_number` gave it.
            records: In the batch.
            want: Whether to bring `dense` up to date with the answer.

        Raises:
            BadGradient: A number is none; nothing was sent.
            DataError: Names, shapes or ids cannot be.
            Moved: The servers have begun another generation.
        """
        vectors = self.layout.pack(gradients.dense, "gradients")
        for server, vector in enumerate(vectors):
            if not np.isfinite(vector).all():
                place = int(np.flatnonzero(~np.isfinite(vector))[0])
                name = self.layout.name_of(server, place)
                raise self._bad(number, f"the gradient of {name!r}")
        tables = {name: self._rows(name, *rows, number) for name, rows in gradients.sparse.items()}
        places = {name: split(ids, len(self._urls)) for name, (ids, _) in tables.items()}
        meta = {**self._told(), "number": number, "records": records, "want": want}
        meta["tables"] = list(tables)

        def act(link: Link, server: int) -> Frame:
            arrays = {"dense": vectors[server]} if gradients.dense else {}
            for place, (name, (ids, rows)) in enumerate(tables.items()):
                mine = places[name][server]
                arrays[f"ids.{place}"], arrays[f"rows.{place}"] = ids[mine], rows[mine]
            version = max(0, self._versions[server])
            return link.exchange("/v1/push", encode({**meta, "version": version}, arrays))

        self._pushes.begin(number, records)
        answers = self._fan.each(act)
        applied = all(answer.meta["outcome"] != "stale" for answer in answers)
        if applied:
            self._pushes.acknowledge(number, records)
        self._take(answers)
        if self._untold and clock.monotonic_s() >= self._tell_at_s:
            self.tell()
        first = answers[0].meta
        if first["save"]:
            self._save_aside(first["version"])
        return Pushed(applied, max(answer.meta["staleness"] for answer in answers))

    def refuse(self, number: int, what: str) -> BadGradient:
        """A loss or a gradient that the trainer found to be no number; the servers count it."""
        return self._bad(number, what)

    def save(self) -> bool:
        """Has all servers write a checkpoint now, unless there is one of this version.

        Returns:
            False where another trainer does it, or has done it.
        """
        self._saver.finish(_SAVED_S)
        ask = {**self._told(), "kind": "save"}
        ticket = self._fan.each(lambda link, _: link.json("POST", "/v1/tickets", ask), [0])[0]
        if ticket["granted"]:
            save(self._fan, self._told(), ticket["version"])
        return bool(ticket["granted"])

    def _went_back(self, ended: int, states: Sequence[Json]) -> None:
        self._saver.finish(0.0)  # of a generation that is over
        lost = self._pushes.go_back([state["newest"] for state in states])
        self.lost_steps += lost.steps
        self.lost_records += lost.records
        found = word(ended, states[0]["setback"], lost, self._who["incarnation"])
        log.warning(
            "%s; %d steps (%d records) of this trainer are lost",
            found.reason,
            lost.steps,
            lost.records,
        )
        self._untold.append(found)
        self.tell()

    def _save_aside(self, version: int) -> None:
        if self._saver.start(self._told(), version):
            return
        with contextlib.suppress(ServersError):  # or it runs out
            body = {**self._told(), "kind": "save", "back": True}
            self._fan.links[0].json("POST", "/v1/tickets", body)

    def _rows(self, table: str, ids: Any, rows: Any, number: int) -> tuple[Any, Any]:
        wanted = checked_ids(table, ids)
        with np.errstate(over="ignore"):  # what overflows is found as infinite
            found = np.ascontiguousarray(rows, dtype=np.float32)
        if found.shape != (len(wanted), self._dim(table)):
            raise DataError(
                f"gradients: table {table!r} has rows {list(found.shape)} for {len(wanted)} ids of "
                f"{self._dim(table)} numbers"
            )
        if len(np.unique(wanted)) != len(wanted):
            raise DataError(
                f"gradients: table {table!r} names an id twice: add its gradients together first"
            )
        if not np.isfinite(found).all():
            raise self._bad(number, f"the gradient of table {table!r}")
        return wanted, found

    def _bad(self, number: int, what: str) -> BadGradient:
        body = {**self._told(), "number": number, "parameter": what}
        try:
            self._fan.links[0].json("POST", "/v1/refusals", body)
        except ServersError as error:
            log.info("parameter server 0 did not hear of it: %s", error)
        return BadGradient(self._who["trainer"], number, what)
