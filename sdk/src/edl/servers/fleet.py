"""All parameter servers of a job, as a trainer sees them: pulls, and pushes gradients."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import numpy as np

from edl.errors import DataError
from edl.servers.errors import BadGradient, ServersError
from edl.servers.frames import Frame, encode
from edl.servers.layout import split
from edl.servers.link import Link
from edl.servers.model import Model
from edl.servers.reader import Reader, checked_ids
from edl.servers.saving import Saver, save
from edl.servers.worker import Gradients
from edl.session import Session

log = logging.getLogger("edl")

_SAVED_S = 20.0


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

    def close(self) -> None:
        """Waits for a checkpoint that is being written, and ends all connections."""
        self._saver.finish(0.0 if self._member.exits else _SAVED_S)
        super().close()

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

        answers = self._fan.each(act)
        self._take(answers)
        first = answers[0].meta
        if first["save"]:
            self._saver.start(self._told(), first["version"])
        applied = all(answer.meta["outcome"] != "stale" for answer in answers)
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
