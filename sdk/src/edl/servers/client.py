"""The client of a job's parameter servers: pulls parameters and pushes gradients."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from edl import clock
from edl.errors import DataError, MasterError
from edl.master.protocol import Json, Lease
from edl.master.session import Session
from edl.overriding import override
from edl.servers.checkpointing import ServerCheckpointer, write_checkpoint
from edl.servers.connection import PserverConnection
from edl.servers.data_rewinder import DataRewinder
from edl.servers.errors import NonFiniteGradient, ServersError
from edl.servers.fan_out import FanOut
from edl.servers.frames import encode
from edl.servers.layout import split
from edl.servers.model_spec import ModelSpec
from edl.servers.parameter_reader import ParameterReader, checked_ids
from edl.servers.push_history import PushHistory, RollbackReport, rollback_report
from edl.servers.worker import Gradients, global_norm
from edl_protocol import pserver as calls
from edl_protocol.frames import Frame

log = logging.getLogger("edl")

_SAVED_S = 20.0
_REPORT_EVERY_S = 2.0
"""Time between attempts to report lost batches to the master."""


class PushOutcome(NamedTuple):
    """The outcome of a push."""

    applied: bool
    """False if a server rejected the push as too stale: pull, and recompute the gradients."""
    staleness: int
    """Number of versions between the pull and the push; the maximum over all servers."""


class PserverClient(ParameterReader):
    """A client of all parameter servers; not thread-safe.

    Call `enter` first, and again after each `GenerationChanged`.
    """

    def __init__(self, member: Session, model: ModelSpec, data: DataRewinder | None = None) -> None:
        super().__init__(member, model, data)
        self._clips_norm = "clip_norm" in model.payload["optimizer"]
        self._saver = ServerCheckpointer(self._connect, self._data)
        self._trim_fan: FanOut | None = None
        self._number = 0
        self._pushes = PushHistory()
        self._unreported: list[RollbackReport] = []
        self._report_at_s = 0.0
        self.refused_rows = 0
        """Number of row gradients that servers dropped because a table or their memory was full."""
        self.lost_steps, self.lost_records = 0, 0
        """Batches of this trainer, and their records, that were lost in rollbacks of the servers."""

    @override
    def close(self) -> None:
        """Waits for a running checkpoint, and closes all connections."""
        self._saver.finish(0.0 if self._member.exits else _SAVED_S)
        if self._trim_fan is not None:
            self._trim_fan.close()
        super().close()

    def trim(self, leases: tuple[Lease, ...]) -> tuple[Lease, ...]:
        """Removes records that the servers have already seen from leases of retried tasks.

        A killed trainer may have pushed part of its task without the master knowing. The thread that
        fetches work calls this.
        """
        retried = [lease for lease in leases if lease.attempt != 1] if self._keeps_position else []
        if not retried:
            return leases
        if self._trim_fan is None:
            self._trim_fan = self._connect()
        body = {**self._request_fields(), "tasks": [lease.task for lease in retried]}
        try:
            (answer,) = self._trim_fan.call_all(
                lambda connection, _: connection.json("POST", calls.PositionCall.PATH, body), [0]
            )
        except ServersError as error:
            log.info("cannot ask which records of retried tasks the servers have seen: %s", error)
            return leases
        remaining: Json = answer["remaining"]
        cut = self._member.lease_table.trim
        trimmed = (cut(e, remaining[e.task]) if e.task in remaining else e for e in leases)
        return tuple(lease for lease in trimmed if lease is not None)

    def report_rollbacks(self) -> None:
        """Reports pending rollbacks to the master; on failure, later calls try again.

        The master may be unreachable, or be a new one that this trainer has not joined yet.
        """
        while self._unreported:
            report = self._unreported[0]
            control = self._member.control()
            try:
                control.report_rollback(
                    report.event,
                    report.reason,
                    steps=report.steps,
                    records=report.records,
                    share=report.share,
                )
            except MasterError as error:
                log.warning("could not report a rollback to the master yet: %s", error)
                self._report_at_s = clock.monotonic_s() + _REPORT_EVERY_S
                return
            del self._unreported[0]

    def next_number(self) -> int:
        """Returns the number of the next batch; all attempts of one batch use the same number."""
        self._number += 1
        return self._number

    def push(
        self,
        gradients: Gradients,
        number: int,
        records: int,
        *,
        want: bool = True,
        remaining: Mapping[str, int] | None = None,
    ) -> PushOutcome:
        """Sends gradients of the parameters in `dense`; each server applies them exactly once.

        Args:
            gradients: The gradients of one batch.
            number: Number of the batch, from `next_number`.
            records: Number of records in the batch.
            want: Whether the answer should update `dense`.
            remaining: Task -> number of records that remain after this batch.

        Raises:
            NonFiniteGradient: A gradient is NaN or infinite; nothing was sent.
            DataError: Names, shapes or ids are invalid.
            GenerationChanged: The servers have started another generation.
        """
        vectors = self.layout.pack(gradients.dense, "gradients")
        for server, vector in enumerate(vectors):
            if not np.isfinite(vector).all():
                position = int(np.flatnonzero(~np.isfinite(vector))[0])
                name = self.layout.parameter_at(server, position)
                raise self._refusal(number, f"the gradient of {name!r}")
        tables = {
            name: self._checked_rows(name, ids, rows, number)
            for name, (ids, rows) in gradients.sparse.items()
        }
        positions_by_table = {
            name: split(ids, len(self._urls)) for name, (ids, _) in tables.items()
        }
        header = {**self._request_fields(), "number": number, "records": records, "want": want}
        header["tables"] = list(tables)
        if self._clips_norm:
            header["norm"] = global_norm([*vectors, *(rows for _, rows in tables.values())])

        def call(connection: PserverConnection, server: int) -> Frame:
            arrays = {"dense": vectors[server]} if gradients.dense else {}
            for index, (name, (ids, rows)) in enumerate(tables.items()):
                positions = positions_by_table[name][server]
                arrays[f"ids.{index}"], arrays[f"rows.{index}"] = ids[positions], rows[positions]
            meta = {**header, "version": max(0, self._versions[server])}
            if remaining and server == 0 and self._keeps_position:
                meta["remaining"] = dict(remaining)
            return connection.exchange_frames(calls.Push.PATH, encode(meta, arrays))

        self._pushes.begin(number, records)
        answers = self._fan.call_all(call)
        applied = all(answer.meta["outcome"] != "stale" for answer in answers)
        if applied:
            self._pushes.acknowledge(number, records)
        self._apply(answers)
        self._count_refused([answer.meta.get("refused", 0) for answer in answers])
        if self._unreported and clock.monotonic_s() >= self._report_at_s:
            self.report_rollbacks()
        first = answers[0].meta
        if first["save"]:
            self._save_in_background(first["version"])
        return PushOutcome(applied, max(answer.meta["staleness"] for answer in answers))

    def report_non_finite(self, number: int, quantity: str) -> NonFiniteGradient:
        """Reports a loss or gradient that is NaN or infinite to the servers, which count such reports."""
        return self._refusal(number, quantity)

    def save(self) -> bool:
        """Makes all servers write a checkpoint now, unless this version already has one.

        Returns:
            False if another trainer is writing or has written it.
        """
        self._saver.finish(_SAVED_S)
        ticket = self._fan.request_ticket({**self._request_fields(), "kind": "save"})
        if ticket["granted"]:
            write_checkpoint(self._fan, self._request_fields(), ticket["version"], self._data)
        return bool(ticket["granted"])

    def _count_refused(self, refused: Sequence[int]) -> None:
        if any(refused) and not self.refused_rows:
            servers = ", ".join(str(server) for server, count in enumerate(refused) if count)
            log.warning(
                "parameter servers %s cannot store more table rows; new rows keep their initial "
                "values and training continues: raise max_rows or the servers' memory, or "
                "let tables evict rows",
                servers,
            )
        self.refused_rows += sum(refused)

    @override
    def _rolled_back(self, ended: int, states: Sequence[Json]) -> None:
        self._saver.finish(0.0)  # its checkpoint belongs to a generation that has ended
        if self._data is not None:
            self._data.drop_ended_leases()
        lost = self._pushes.roll_back([state["newest"] for state in states])
        self.lost_steps += lost.steps
        self.lost_records += lost.records
        report = rollback_report(ended, states[0]["setback"], lost, self._identity["incarnation"])
        log.warning(
            "%s; lost %d steps (%d records) of this trainer",
            report.reason,
            lost.steps,
            lost.records,
        )
        self._unreported.append(report)
        self.report_rollbacks()

    def _save_in_background(self, version: int) -> None:
        if not self._saver.start(self._request_fields(), version):
            self._fan.return_ticket({**self._request_fields(), "kind": "save"})

    def _checked_rows(self, table: str, ids: Any, rows: Any, number: int) -> tuple[Any, Any]:
        row_ids = checked_ids(table, ids)
        with np.errstate(over="ignore"):  # an overflow becomes infinity, which is checked below
            gradient_rows = np.ascontiguousarray(rows, dtype=np.float32)
        if gradient_rows.shape != (len(row_ids), self._dim(table)):
            raise DataError(
                f"gradients: the rows of table {table!r} have shape {list(gradient_rows.shape)}: "
                f"{len(row_ids)} ids of {self._dim(table)} numbers need [{len(row_ids)}, {self._dim(table)}]"
            )
        if len(np.unique(row_ids)) != len(row_ids):
            raise DataError(
                f"gradients: table {table!r} has an id twice: add up its gradients first"
            )
        if not np.isfinite(gradient_rows).all():
            raise self._refusal(number, f"the gradient of table {table!r}")
        return row_ids, gradient_rows

    def _refusal(self, number: int, quantity: str) -> NonFiniteGradient:
        body = {**self._request_fields(), "number": number, "parameter": quantity}
        try:
            self._fan.connections[0].json("POST", calls.Refusal.PATH, body)
        except ServersError as error:
            log.info("could not report a non-finite value to parameter server 0: %s", error)
        return NonFiniteGradient(self._identity["trainer"], number, quantity)
