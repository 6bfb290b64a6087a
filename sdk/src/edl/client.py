"""The protocol's calls, one method each, as one incarnation of one trainer; no retries, no threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from edl import wire
from edl.connection import ANSWER_S, Connection

_MOST_REASON = 2000
"""Characters that the master takes."""


class Client:
    """Speaks for one trainer over one connection; all methods raise `MasterError`."""

    def __init__(self, connection: Connection, trainer: str, incarnation: str) -> None:
        self._connection = connection
        self._who: wire.Json = {"trainer": trainer, "incarnation": incarnation}

    def join(
        self,
        done: Sequence[wire.Json] = (),
        held: Sequence[wire.Json] = (),
        lead: wire.Json | None = None,
    ) -> wire.Welcome:
        """Makes this incarnation known; what an older one held goes back.

        Args:
            done: Acknowledgements that another master, who took over, may not know of.
            held: Tasks this incarnation holds.
            lead: Of whoever leads a group: the data set, and how new its model is.
        """
        body = {**self._who}
        if done or held:
            body.update(done=list(done), held=list(held))
        if lead is not None:
            body["lead"] = lead
        return wire.welcome(self._connection.call("POST", "/v1/join", body))

    def begin_term(self, dataset: str, term: int) -> int:
        """The group goes on in a later round, with the same leader; in which term."""
        body = {**self._who, "dataset": dataset, "term": term}
        return wire.term(self._connection.call("POST", "/v1/terms", body))

    def describe(self, name: str, description: wire.Json) -> wire.Json:
        """Describes a data set: the first description wins, and is returned."""
        path = f"/v1/datasets/{quote(name, safe='')}"
        return self._connection.call("PUT", path, description)

    def work(
        self,
        report: wire.Report,
        *,
        want: int = 0,
        wait_s: float = 0.0,
        scope: wire.Json,
        answer_s: float = ANSWER_S,
    ) -> wire.Work:
        """Acknowledges and leases in one call.

        Args:
            report: What became of tasks held before.
            want: How many tasks to lease at most.
            wait_s: How long the master may wait for some to come free.
            scope: Which tasks: `kinds`, `datasets`, and the number of this `call`.
            answer_s: How long the answer may take beyond `wait_s`.
        """
        body = {**self._who, **report.lists(), "want": want, "wait_s": wait_s, **scope}
        answer = self._connection.call("POST", "/v1/work", body, answer_s=wait_s + answer_s)
        return wire.work(answer)

    def heartbeat(self, held: Sequence[wire.Json]) -> wire.Pulse:
        """Says that this trainer lives, and how far it is with each task."""
        body = {**self._who, "held": list(held)}
        return wire.pulse(self._connection.call("POST", "/v1/heartbeat", body))

    def leave(self, back: Sequence[wire.Json], answer_s: float) -> None:
        """Ends this incarnation and hands tasks back."""
        body = {**self._who, "back": list(back)}
        self._connection.call("POST", "/v1/leave", body, answer_s=answer_s)

    def ask_to_save(self, newest: int = 0) -> wire.Ticket:
        """Whether this trainer shall save a checkpoint now.

        Args:
            newest: Version of the newest that is there; the ticket's is greater.
        """
        body = {**self._who, "newest": newest} if newest else self._who
        return wire.ticket(self._connection.call("POST", "/v1/checkpoints", body))

    def saved(self, ticket: str, *, path: str, step: int, ok: bool) -> None:
        """Says what became of a checkpoint."""
        body = {"path": path, "step": step, "ok": ok}
        self._connection.call("PUT", f"/v1/checkpoints/{quote(ticket, safe='')}", body)

    def evaluate(self, model_version: int, dataset: str) -> None:
        """Asks for an evaluation of a model version."""
        body = {"model_version": model_version, "dataset": dataset}
        self._connection.call("POST", "/v1/evaluations", body)

    def evaluation(self, model_version: int) -> wire.Json:
        """What is known of an evaluation."""
        return self._connection.call("GET", f"/v1/evaluations/{model_version}")

    def meet(self, told: wire.Json, wait_s: float, answer_s: float = ANSWER_S) -> wire.Meeting:
        """Says how this member of a synchronous job is, and hears who trains together.

        Args:
            told: The body, but for who calls.
            wait_s: How long the master may wait for news.
            answer_s: How long the answer may take beyond that.
        """
        body = {**self._who, **told, "wait_s": wait_s}
        found = self._connection.call("POST", "/v1/rendezvous", body, answer_s=wait_s + answer_s)
        return wire.meeting(found)

    def quit(self, answer_s: float = ANSWER_S) -> None:
        """This member is in no later round."""
        self._connection.call("POST", "/v1/rendezvous/leave", self._who, answer_s=answer_s)

    def fail(self, reason: str) -> None:
        """The job cannot succeed: it fails."""
        self._connection.call("POST", "/v1/fail", {**self._who, "reason": reason[:_MOST_REASON]})

    def setback(
        self,
        event: str,
        reason: str,
        *,
        steps: int,
        records: int,
        share: dict[str, Any] | None = None,
    ) -> None:
        """Work was lost together with the model's state; one setback, whoever tells of the event.

        Args:
            event: Names what happened.
            reason: One line.
            steps: Lost in all, as far as the caller knows.
            records: Likewise.
            share: What it knows exactly of its own part: see the master's protocol.
        """
        body = {**self._who, "event": event, "reason": reason[:_MOST_REASON]}
        body.update(steps=steps, records=records)
        if share is not None:
            body["share"] = share
        self._connection.call("POST", "/v1/setbacks", body)

    def status(self) -> dict[str, Any]:
        """The whole job, as the master sees it."""
        return self._connection.call("GET", "/v1/status")

    def interrupt(self) -> None:
        """A call that waits in another thread ends at once."""
        self._connection.interrupt()

    def close(self) -> None:
        """Ends the connection; a call that waits ends at once."""
        self._connection.close()
