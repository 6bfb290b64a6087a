"""How a trainer comes to servers that all serve one generation, however they are found."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

from edl import clock
from edl.backoff import Backoff
from edl.errors import SettingError
from edl.servers import settling
from edl.servers.errors import Away, Declined, ServersError
from edl.servers.fan import Fan
from edl.servers.layout import Layout
from edl.servers.link import Link
from edl.servers.model import Model

log = logging.getLogger("edl")

Json = dict[str, Any]
_WAIT_S = 5.0
_AGAIN = ("generation", "checkpoint", "index")
"""Fields of refusals after which things look different."""


class Entry:
    """Of one trainer; settles the servers where nobody else does."""

    def __init__(
        self,
        fan: Fan,
        who: Json,
        *,
        job: str,
        patience_s: float,
        stopping: Callable[[], bool],
    ) -> None:
        """Has not entered yet.

        Args:
            fan: To all servers.
            who: Trainer and incarnation.
            job: That the servers must be of; "" takes any.
            patience_s: How long to wait for them.
            stopping: Whether this program is about to end.
        """
        self._fan, self._who, self._job = fan, who, job
        self._patience_s, self._stopping = patience_s, stopping
        self.generation = 0
        self.seen: Json | None = None
        """How far server 0 was in this generation, by its last answer."""

    def enter(self, model: Model | None, layout: Layout | None) -> list[Json]:
        """Waits until all serve one generation, and does what is needed for that.

        Args:
            model: What this trainer trains; None only reads, and settles nothing.
            layout: Of the model.

        Returns:
            The servers' states: each has the `newest` push of this process that it holds, and the
            `setback` that ended the generation in which this trainer was, where it knows that.

        Raises:
            Declined: They hold something else than this trainer trains.
            Away: They were not there, or not ready, for too long.
        """
        backoff, until_s = Backoff(), clock.monotonic_s() + self._patience_s
        ready = 0
        while True:
            states = self._states(model)
            generations = {state["generation"] for state in states}
            if len(generations) == 1 and all(state["ready"] for state in states):
                generation = generations.pop()
                if generation != self.generation:
                    self.generation, self.seen = generation, None
                return states
            before, ready = ready, states[0]["generation"] if states[0]["ready"] else 0
            if ready != before and ready:
                continue  # server 0 is settled last: others may have answered before they were
            if model is not None and layout is not None and self._settled(model, layout, states):
                continue
            if self._stopping():
                raise Away("this trainer is about to end")
            left_s = until_s - clock.monotonic_s()
            if left_s <= 0:
                raise Away(
                    f"the parameter servers were not ready for {self._patience_s:g} s "
                    "(EDL_PATIENCE_S): see their logs"
                )
            self._wait(states[0], backoff, left_s)

    def _states(self, model: Model | None) -> list[Json]:
        body = {**self._who, "generation": self.generation, "seen": self.seen}
        body["model"] = None if model is None else model.told

        def act(link: Link, server: int) -> Json:
            state = link.json("POST", "/v1/enter", body)
            self._check(state, link, server)
            return state

        return self._fan.each(act)

    def _check(self, state: Json, link: Link, server: int) -> None:
        if (state["index"], state["of"]) != (server, len(self._fan)):
            raise SettingError(
                f"EDL_PARAMETER_SERVERS names {len(self._fan)} servers, and {link.address} as "
                f"number {server}; it is number {state['index']} of {state['of']}"
            )
        if self._job and state["job"] != self._job:
            raise SettingError(
                f"EDL_PARAMETER_SERVERS: {link.address} serves job {state['job']!r}, this trainer "
                f"is of job {self._job!r}"
            )

    def _settled(self, model: Model, layout: Layout, states: list[Json]) -> bool:
        """Whether things look different now: this trainer, or another one, has settled them."""
        ask = {**self._who, "generation": states[0]["generation"], "kind": "settle"}
        ticket = self._fan.each(lambda link, _: link.json("POST", "/v1/tickets", ask), [0])[0]
        if not ticket["granted"]:
            return False
        try:
            return self._settle(model, layout, states, ticket["ticket"])
        except BaseException:
            with contextlib.suppress(ServersError):  # or it runs out
                self._fan.links[0].json("POST", "/v1/tickets", {**ask, "back": True})
            raise

    def _settle(self, model: Model, layout: Layout, states: list[Json], ticket: int) -> bool:
        begin = settling.plan(states, self.generation)
        told = {**self._who, "ticket": ticket, "model": model.told}
        told.update(seen=self.seen, ended=self.generation)
        first = layout.pack(model.first, "first parameters")
        try:
            settling.settle(self._fan, layout, first, begin, told)
        except Declined as error:
            if error.field not in _AGAIN:
                raise
            log.info("parameter servers could not begin: %s", error)
            return False
        if begin.reason:
            log.warning("%s", begin.reason)
        return True

    def _wait(self, first: Json, backoff: Backoff, left_s: float) -> None:
        """Until server 0 is ready, or a moment where it is and others are not."""
        if first["ready"]:
            threading.Event().wait(min(left_s, backoff.next_s()))
            return
        wait_s = min(left_s, _WAIT_S)
        body = {**self._who, "generation": self.generation, "wait_s": wait_s}
        self._fan.each(lambda link, _: link.json("POST", "/v1/enter", body), [0])
