"""Waits until all parameter servers serve the same generation, and starts one if necessary."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from edl import clock
from edl.backoff import Backoff
from edl.errors import SettingError
from edl.master.protocol import Json
from edl.servers import generation_start
from edl.servers.connection import PserverConnection
from edl.servers.data_rewinder import DataRewinder, DataTarget
from edl.servers.errors import RequestRefused, ServersUnavailable
from edl.servers.fan_out import FanOut
from edl.servers.generation_start import GenerationStart
from edl.servers.layout import Layout
from edl.servers.model_spec import ModelSpec
from edl_protocol.pserver import Enter, PositionCall

log = logging.getLogger("edl")
_WAIT_S = 5.0
_AGAIN = ("generation", "checkpoint", "index")
"""If a refusal names one of these fields, the servers' states have changed and are read again."""


class GenerationBarrier:
    """A barrier that a trainer passes once all servers serve the same generation.

    If they do not, the trainer that gets a ticket from server 0 starts a new generation.
    """

    def __init__(
        self,
        fan: FanOut,
        identity: Json,
        *,
        job: str,
        patience_s: float,
        stopping: Callable[[], bool],
        data: DataRewinder | None = None,
    ) -> None:
        """Creates the barrier; sends nothing yet.

        Args:
            fan: Calls all servers.
            identity: The protocol's fields for trainer and incarnation.
            job: The job that the servers must belong to; "" accepts any.
            patience_s: How long to wait for the servers.
            stopping: Returns whether this process is stopping.
            data: Rewinds the data together with the servers; None for a trainer without data.
        """
        self._data = data
        self._fan, self._identity, self._job = fan, identity, job
        self._patience_s, self._stopping = patience_s, stopping
        self.generation = 0
        self.position: Json | None = None
        """Version and records of server 0 in this generation, from its last answer."""

    def enter(self, model: ModelSpec | None, layout: Layout | None) -> list[Json]:
        """Waits until all servers serve the same generation, and starts one if necessary.

        Args:
            model: The model that this trainer trains; None to read only and never start a generation.
            layout: The layout of the model.

        Returns:
            The servers' states, each with the `newest` push of this process that the server has
            applied, and the `setback` that ended this trainer's generation, if the server knows it.

        Raises:
            RequestRefused: The servers hold a different model.
            ServersUnavailable: The servers were unreachable or not ready for longer than `patience_s`.
        """
        backoff, until_s = Backoff(), clock.monotonic_s() + self._patience_s
        ready = 0
        while True:
            states = self._states(model)
            generations = {state["generation"] for state in states}
            if len(generations) == 1 and all(state["ready"] for state in states):
                generation = generations.pop()
                if generation != self.generation:
                    self.generation, self.position = generation, None
                return states
            ready_before, ready = ready, states[0]["generation"] if states[0]["ready"] else 0
            if ready != ready_before and ready:
                continue  # server 0 starts last, so the others are ready now if they were not before
            if (
                model is not None
                and layout is not None
                and self._started_generation(model, layout, states)
            ):
                continue
            if self._stopping():
                raise ServersUnavailable("this trainer is stopping")
            left_s = until_s - clock.monotonic_s()
            if left_s <= 0:
                raise ServersUnavailable(
                    f"the parameter servers were not ready for {self._patience_s:g} s "
                    "(EDL_PATIENCE_S): see their logs"
                )
            self._wait(states[0], backoff, left_s)

    def _states(self, model: ModelSpec | None) -> list[Json]:
        body = {**self._identity, "generation": self.generation, "seen": self.position}
        body["model"] = None if model is None else model.payload

        def call(connection: PserverConnection, server: int) -> Json:
            state = connection.json("POST", Enter.PATH, body)
            self._check(state, connection, server)
            return state

        return self._fan.call_all(call)

    def _check(self, state: Json, connection: PserverConnection, server: int) -> None:
        if (state["index"], state["of"]) != (server, len(self._fan)):
            raise SettingError(
                f"EDL_PARAMETER_SERVERS has {len(self._fan)} servers with {connection.address} as "
                f"number {server}, but that server is number {state['index']} of {state['of']}"
            )
        if self._job and state["job"] != self._job:
            raise SettingError(
                f"EDL_PARAMETER_SERVERS: {connection.address} serves job {state['job']!r}, but this "
                f"trainer belongs to job {self._job!r}"
            )

    def _started_generation(self, model: ModelSpec, layout: Layout, states: list[Json]) -> bool:
        """Starts a generation if server 0 grants a ticket; returns whether states may have changed."""
        request = {**self._identity, "generation": states[0]["generation"], "kind": "settle"}
        ticket = self._fan.request_ticket(request)
        if not ticket["granted"]:
            return False
        try:
            return self._start(model, layout, states, ticket["ticket"])
        except BaseException:
            self._fan.return_ticket(request)
            raise

    def _start(self, model: ModelSpec, layout: Layout, states: list[Json], ticket: int) -> bool:
        newest = 0 if self._data is None else self._data.newest_generation()
        start = generation_start.plan_start(states, max(self.generation, newest))
        header = {**self._identity, "ticket": ticket, "model": model.payload}
        header.update(seen=self.position, ended=self.generation)
        if states[0].get("positions"):
            header["rewound"] = self._rewind_data(start, ticket)
        first = layout.pack(model.initial, "first parameters")
        try:
            generation_start.start_generation(self._fan, layout, first, start, header)
        except RequestRefused as error:
            if error.field not in _AGAIN:
                raise
            log.info("parameter servers could not start a generation: %s", error)
            return False
        if start.reason:
            log.warning("%s", start.reason)
        return True

    def _rewind_data(self, start: GenerationStart, ticket: int) -> bool:
        """Rewinds the data to the position of the new generation; returns whether that succeeded."""
        if self._data is None:
            return False
        event = f"generation-{start.generation - 1}"
        target = DataTarget(event, start.reason, start.generation, ticket)
        if start.checkpoint is not None:
            body = {**self._identity, "generation": 0, "checkpoint": start.checkpoint}
            try:
                (position,) = self._fan.call_all(
                    lambda connection, _: connection.json("POST", PositionCall.PATH, body), [0]
                )
            except RequestRefused as error:
                log.warning("could not rewind the data with the parameters: %s", error)
                return False
            if not position["known"]:
                return False
            ledger, remaining = position["ledger"], position["remaining"]
            version = int(start.checkpoint["version"])
            target = replace(target, version=version, ledger=ledger, remaining=remaining)
        return self._data.rewind(target)

    def _wait(self, first: Json, backoff: Backoff, left_s: float) -> None:
        """Waits until server 0 is ready; if only others are not ready, waits for the back-off time."""
        if first["ready"]:
            threading.Event().wait(min(left_s, backoff.next_s()))
            return
        wait_s = min(left_s, _WAIT_S)
        body = {**self._identity, "generation": self.generation, "wait_s": wait_s}
        self._fan.call_all(lambda connection, _: connection.json("POST", Enter.PATH, body), [0])
