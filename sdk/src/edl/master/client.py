"""The calls in the master's protocol, one method per call, without retries or threads.

Calls for work are numbered, sent one at a time, and repeated unchanged until they are answered
(`WorkCalls`). So even if an answer is lost, the trainer learns of every task that is leased to it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from edl.errors import MasterError, Refused, Unavailable
from edl.master import protocol
from edl.master.connection import ANSWER_S, Connection
from edl.master.leases import LeaseTable
from edl_protocol import master as calls
from edl_protocol.fields import Call, to_json

LAST_CALL_S = 0.2
"""Timeout for each of the last calls before the end of the grace period; the master may be away."""
_WRONG_FIELD = 422
_POSITION_S = 2.0
"""Timeout for a position call, because a whole group may be waiting for its answer."""
_LATER_FIELDS = ("transient", "counted", "steps", "metrics")
"""Fields of reports that older masters do not know."""


@dataclass(frozen=True)
class WorkRequest:
    """A call for work that can be repeated unchanged."""

    number: int
    report: protocol.Report
    """Tasks that are done, failed or handed back."""
    want: int
    """Maximum number of tasks to lease."""
    wait_s: float
    """How long the master may wait for a task to become free."""
    scope: protocol.Json
    """The `kinds` and `datasets` of tasks to lease."""


@dataclass(frozen=True)
class WorkResult:
    """The answer to a call for work, after it has been entered in the lease table."""

    leases: tuple[protocol.Lease, ...]
    refused: list[str]
    """Tasks whose results came too late."""
    state: str
    again_s: float | None
    settling: bool = False
    """Whether the master has just taken over and leases nothing yet."""


class Client:
    """A client of the master for one incarnation of a trainer; all methods raise `MasterError`."""

    def __init__(self, connection: Connection, trainer: str, incarnation: str) -> None:
        self._connection = connection
        self._trainer, self._incarnation = trainer, incarnation
        self._fields: protocol.Json = {"trainer": trainer, "incarnation": incarnation}

    def join(
        self,
        done: Sequence[protocol.Json] = (),
        held_tasks: Sequence[protocol.Json] = (),
        lead: protocol.Json | None = None,
    ) -> protocol.JoinResponse:
        """Joins the job; the master takes back tasks that an older incarnation of the trainer held.

        Args:
            done: Acknowledgements that a new master may not have.
            held_tasks: Tasks that this incarnation holds.
            lead: Only a group's leader sends this: the data set, and how recent the leader's model is.
        """
        body = {**self._fields}
        if done or held_tasks:
            body.update(done=list(done), held=list(held_tasks))
        if lead is not None:
            body["lead"] = lead
        return protocol.parse_join(self._connection.call("POST", calls.JoinRequest.PATH, body))

    def begin_term(self, dataset: str, term: int) -> int:
        """Starts the next round of the group under the same leader; returns the term."""
        return protocol.parse_term(
            self._call(calls.TermRequest(self._trainer, self._incarnation, dataset, term))
        )

    def describe(self, name: str, description: protocol.Json) -> protocol.Json:
        """Describes a data set; returns the first description, which remains in force."""
        path = calls.DatasetDescription.PATH.format(name=quote(name, safe=""))
        try:
            return self._connection.call("PUT", path, description)
        except Refused as error:
            if error.status != _WRONG_FIELD or error.field != "record_order":
                raise
        # an older master does not know the field; trainers compute the order themselves
        known = {key: value for key, value in description.items() if key != "record_order"}
        return self._connection.call("PUT", path, known)

    def work(self, request: WorkRequest, answer_s: float = ANSWER_S) -> protocol.WorkResponse:
        """Reports results and leases tasks in one call.

        Args:
            request: The call.
            answer_s: How long the answer may take beyond the request's `wait_s`.
        """
        report, answer_s = request.report, request.wait_s + answer_s
        body = {**self._fields, **report.lists(), **request.scope}
        body.update(want=request.want, wait_s=request.wait_s, call=request.number)
        try:
            answer = self._connection.call("POST", calls.WorkRequest.PATH, body, answer_s=answer_s)
        except Refused as error:
            if not _is_unknown_field(error):
                raise
            body["failed"] = _without_later_fields(report.failed)
            body["back"] = _without_later_fields(report.back)
            answer = self._connection.call("POST", calls.WorkRequest.PATH, body, answer_s=answer_s)
        return protocol.parse_work(answer)

    def heartbeat(self, entries: Sequence[protocol.Json]) -> protocol.HeartbeatResponse:
        """Sends a heartbeat with the progress of each held task."""
        body = {**self._fields, "held": list(entries)}
        return protocol.parse_heartbeat(
            self._connection.call("POST", calls.HeartbeatRequest.PATH, body)
        )

    def leave(self, back: Sequence[protocol.Json], answer_s: float) -> None:
        """Ends this incarnation and hands tasks back."""
        body = {**self._fields, "back": list(back)}
        try:
            self._connection.call("POST", calls.LeaveRequest.PATH, body, answer_s=answer_s)
        except Refused as error:
            if not _is_unknown_field(error):
                raise
            body["back"] = _without_later_fields(back)
            self._connection.call("POST", calls.LeaveRequest.PATH, body, answer_s=answer_s)

    def request_save(self, newest: int = 0) -> protocol.Ticket:
        """Asks whether this trainer should save a checkpoint now.

        Args:
            newest: Version of the newest existing checkpoint; the ticket's version is greater.
        """
        request = calls.CheckpointRequest(self._trainer, self._incarnation, newest)
        return protocol.parse_ticket(self._call(request))

    def report_saved(self, ticket: str, *, path: str, step: int, ok: bool) -> None:
        """Reports whether a checkpoint was saved."""
        body = to_json(calls.CheckpointReport(path, step, ok))
        self._connection.call(
            "PUT", calls.CheckpointReport.PATH.format(ticket=quote(ticket, safe="")), body
        )

    def evaluate(self, model_version: int, dataset: str) -> None:
        """Requests an evaluation of a model version."""
        self._call(calls.EvaluationRequest(model_version, dataset))

    def evaluation(self, model_version: int) -> protocol.Json:
        """Returns the state of an evaluation."""
        path = calls.EVALUATION_PATH.format(model_version=model_version)
        return self._connection.call("GET", path)

    def poll_rendezvous(
        self, state: protocol.Json, wait_s: float, answer_s: float = ANSWER_S
    ) -> protocol.RoundView:
        """Reports this member's state and returns the newest round, in a long poll.

        Args:
            state: The body of the call, without the caller's identity.
            wait_s: How long the master may wait for a change.
            answer_s: How long the answer may take beyond `wait_s`.
        """
        body = {**self._fields, **state, "wait_s": wait_s}
        answer = self._connection.call(
            "POST", calls.RendezvousPoll.PATH, body, answer_s=wait_s + answer_s
        )
        return protocol.parse_round(answer)

    def leave_rendezvous(self, answer_s: float = ANSWER_S) -> None:
        """Excludes this member from later rounds."""
        self._call(calls.RendezvousLeave(self._trainer, self._incarnation), answer_s)

    def set_key(self, number: int, key: str, value: str) -> None:
        """Sets a key of a round to a value, given as base64."""
        self._call(calls.KeySet(self._trainer, self._incarnation, number, key, value))

    def delete_keys(self, number: int, keys: Sequence[str]) -> None:
        """Deletes keys of a round."""
        self._call(calls.KeyDelete(self._trainer, self._incarnation, number, list(keys)))

    def add_to_key(self, number: int, key: str, amount: int, call: int) -> int:
        """Adds to a round's counter and returns the sum; calls with the same number count once."""
        return int(
            self._call(calls.KeyAdd(self._trainer, self._incarnation, number, key, amount, call))[
                "value"
            ]
        )

    def keys(self, number: int, keys: Sequence[str], wait_s: float) -> dict[str, str]:
        """Waits for keys of a round; returns key -> value (base64) for the keys that are set."""
        request = calls.KeyGet(self._trainer, self._incarnation, number, list(keys), wait_s)
        values: dict[str, str] = self._call(request, ANSWER_S + wait_s)["values"]
        return values

    def fail(self, reason: str) -> None:
        """Fails the job."""
        self._call(
            calls.JobFailure(self._trainer, self._incarnation, reason[: calls.MAX_REASON_CHARS])
        )

    def report_rollback(
        self,
        event: str,
        reason: str,
        *,
        steps: int,
        records: int,
        share: calls.RollbackShare | None = None,
    ) -> None:
        """Reports a rollback, that is, work lost with the model's state. Each event counts once.

        Args:
            event: Name of the event, the same in all members that report it.
            reason: The reason for the rollback, in one line.
            steps: Total number of lost steps, as far as the caller knows.
            records: Total number of lost records, as far as the caller knows.
            share: The caller's exact losses.
        """
        reason = reason[: calls.MAX_REASON_CHARS]
        self._call(
            calls.RollbackReport(
                self._trainer, self._incarnation, event, reason, steps, records, share
            )
        )

    def position(self, dataset: str, tasks: Sequence[str] = ()) -> protocol.Json:
        """Returns the position in a data set for a checkpoint, and which of `tasks` are done."""
        return self._call(
            calls.PositionRequest(self._trainer, self._incarnation, dataset, list(tasks)),
            _POSITION_S,
        )

    def rewind(self, dataset: str, target: protocol.Json) -> protocol.Json:
        """Rewinds a data set to the records that a restored model has seen; see the master's protocol.

        Args:
            dataset: The data set.
            target: All other fields of the call, without the caller's identity.
        """
        body = {**self._fields, "dataset": dataset, **target}
        body["reason"] = body["reason"][: calls.MAX_REASON_CHARS]
        return self._connection.call("POST", calls.RewindRequest.PATH, body)

    def status(self) -> dict[str, Any]:
        """Returns the status of the whole job."""
        return self._connection.call("GET", calls.STATUS_PATH)

    def close(self) -> None:
        """Closes the connection and aborts a call that is waiting in another thread."""
        self._connection.close()

    def _call(self, message: Call, answer_s: float = ANSWER_S) -> protocol.Json:
        return self._connection.call(message.METHOD, message.PATH, to_json(message), answer_s)


class WorkCalls:
    """The numbered calls for work that one incarnation sends; a sender needs `exclusive` access."""

    def __init__(self, lease_table: LeaseTable) -> None:
        self._lease_table = lease_table
        self._lock = threading.Lock()
        self._number = 0
        self.generation = 0
        """Generation of the master that this trainer joined last."""
        self.unanswered: WorkRequest | None = None
        """The request that was sent and is not answered yet."""

    @contextmanager
    def exclusive(self, timeout_s: float) -> Iterator[bool]:
        """Takes exclusive access for sending; yields False if it is not free within `timeout_s`."""
        acquired = self._lock.acquire(timeout=timeout_s)
        try:
            yield acquired
        finally:
            if acquired:
                self._lock.release()

    def new_request(
        self, report: protocol.Report, scope: protocol.Json, want: int = 0, wait_s: float = 0.0
    ) -> WorkRequest:
        """Returns a request with the next number."""
        self._number += 1
        return WorkRequest(self._number, report, want, wait_s, scope)

    def send(self, client: Client, request: WorkRequest, answer_s: float = ANSWER_S) -> WorkResult:
        """Sends a request, new or repeated, and enters its answer in the lease table.

        Raises:
            Unavailable: The master does not answer; the request remains unanswered.
            Refused: The master refuses the request; it must not be repeated.
        """
        self.unanswered = request
        try:
            response = client.work(request, answer_s)
        except Refused:
            self.unanswered = None
            raise
        if response.generation < self.generation:
            raise Unavailable("the answer came from a master that has been replaced")
        self.unanswered = None
        refused = self._lease_table.apply_results(request.report, response.results, request.number)
        self._lease_table.mark_durable(request.number if response.safe is None else response.safe)
        leases = tuple(lease for lease in response.leases if self._lease_table.add(lease))
        return WorkResult(leases, refused, response.state, response.again_s, response.settling)

    def flush(self, client: Client, *, back: str | None = None) -> bool:
        """Reports done and failed tasks, with short timeouts.

        Args:
            client: The client to use.
            back: A data set whose unfinished tasks are handed back.

        Returns:
            False if the master did not answer.
        """
        with self.exclusive(LAST_CALL_S) as acquired:
            try:
                if acquired and self.unanswered is not None:
                    self.send(client, replace(self.unanswered, wait_s=0.0), LAST_CALL_S)
                report = self._lease_table.report()
                if back is not None:
                    report.back = self._lease_table.unfinished(back)
                if report:
                    self.send(client, self.new_request(report, {}), LAST_CALL_S)
            except MasterError:
                return False
        return True


def _is_unknown_field(error: Refused) -> bool:
    """Returns whether an older master refused a call for an unknown field in a report.

    Such a call has had no effect.
    """
    list_name, _, field = (error.field or "").partition(".")
    later = field.rpartition(".")[2] in _LATER_FIELDS
    return error.status == _WRONG_FIELD and list_name in ("failed", "back") and later


def _without_later_fields(entries: Sequence[protocol.Json]) -> list[protocol.Json]:
    return [{k: v for k, v in entry.items() if k not in _LATER_FIELDS} for entry in entries]
