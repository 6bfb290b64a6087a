"""Rounds for programs in JAX: the processes of JAX follow those of the master, without a restart."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from edl.collective import Interrupt
from edl.errors import RoundOver
from edl.jax import distributed
from edl.jax.agent_services import VARIABLE, AgentServices
from edl.jax.services import CoordinationServices
from edl.master.protocol import Round
from edl.master.rounds import Rounds
from edl.master.session import Session, session
from edl.torch.groups.waiting import Waiting

log = logging.getLogger("edl")

_SERVICE = "jax/service"


class JaxRounds:
    """An iterator over rounds, in which the members' processes are those of JAX.

    ```python
    with edl.jax.JaxRounds(state) as rounds:
        for round in rounds:
            try:
                while more:
                    total = rounds.sum({"gradient": gradient, "changed": rounds.changed})
                    rounds.state, rounds.step = update(rounds.state, total), rounds.step + 1
                    if total["changed"]:
                        break
            except edl.RoundOver:
                rounds.broken()
    ```

    At the begin of a round all members have the `state` of the member with the largest `step`, as
    arrays on the host: backends of JAX end with a round, and with them all arrays but these.
    """

    def __init__(
        self, state: Any, *, code: Mapping[str, str] | None = None, member: Session | None = None
    ) -> None:
        """Makes no call yet.

        Args:
            state: A pytree of numbers and arrays, of the same structure in all members.
            code: As of `edl.Rounds`.
            member: This trainer's session; the process's by default.

        Raises:
            DataError: The state holds something else, such as a key of `jax.random.key`.
        """
        own = session() if member is None else member
        digest = hashlib.sha256(distributed.signature(state).encode()).hexdigest()[:16]
        shared = {"jax": str(jax.__version__), "state": digest, **(code or {})}
        self._interrupt = Interrupt()
        self._rounds = Rounds(code=shared, on_broken=self._interrupt.set, member=own)
        self._waiting = Waiting(self._interrupt, self._rounds.waiting)
        path = os.environ.get(VARIABLE)
        self._services = AgentServices(path) if path else CoordinationServices(own.settings.address)
        self._processes = distributed.Processes(0, 1)
        self._is_broken = False
        self.state = state
        """What members share; the program replaces it after each step."""
        self.step = 0
        """Number of steps that are in the state."""

    def __enter__(self) -> JaxRounds:  # noqa: PYI034 - Self needs Python 3.11
        self._rounds.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.state = distributed.to_host(self.state)
        self._processes.leave(is_broken=True)  # perhaps with a collective under way
        self._rounds.__exit__(*error)
        self._services.close()
        self._interrupt.close()

    def __iter__(self) -> Iterator[Round]:
        """Waits for the next round, brings all members to the same state, and yields it.

        Raises:
            Refused: The other members run another program, or have a state of another structure.
            Unavailable: The master was away for too long.
            SystemExit: SIGTERM came, and this trainer has left; the exit code is 143.
        """
        for round_ in self._rounds:
            self._interrupt.clear()
            try:
                self._begin(round_)
            except RoundOver as error:
                log.info("round %d is over: %s", round_.number, error)
                self.broken()
                continue
            yield round_

    @property
    def changed(self) -> bool:
        """Whether to end the current round: a later one is to begin, or this trainer is to leave."""
        return self._rounds.changed

    def sum(self, tree: Any) -> Any:
        """Sums a pytree of numbers and arrays over all members; truth values are counted.

        Returns:
            The same structure, of this member's own arrays. With a lone member `tree` itself.

        Raises:
            RoundOver: A member is lost: call `broken`, and go on in the next round.
        """
        if self._processes.count == 1:
            self._waiting.check()
            return tree
        return self._waiting.call(lambda: self._processes.sum(tree))

    def broken(self) -> None:
        """Reports at once that the current round is broken, because a collective failed."""
        self._is_broken = True
        self._rounds.broken()

    def finish(self) -> None:
        """Marks this trainer as finished: it takes part in no later round."""
        self._rounds.finish()

    def _begin(self, round_: Round) -> None:
        """Makes the members of a round the processes of JAX, with the newest state."""
        self.state = distributed.to_host(self.state)
        self._processes.leave(is_broken=self._is_broken)
        self._is_broken = False
        self._processes = distributed.Processes(round_.rank, round_.world_size)
        if round_.world_size > 1:
            self._waiting.call(lambda: self._join(round_))
            self._processes.use()
            self._take_newest()
        self._rounds.ready()

    def _join(self, round_: Round) -> None:
        store = self._rounds.store
        if round_.rank == 0:
            store.set(_SERVICE, self._services.serve(round_.world_size).encode())
        self._processes.join(store.get(_SERVICE).decode())

    def _take_newest(self) -> None:
        """Takes over the state of the member that has made the most steps."""
        processes = self._processes
        own = np.zeros(processes.count, np.int32)
        own[processes.rank] = self.step
        steps = [int(step) for step in self.sum(own)]
        source = steps.index(max(steps))
        if steps[source] and min(steps) == steps[source]:
            return  # all have made the same steps, of the same state
        is_source = source == processes.rank
        words = jax.tree_util.tree_map(distributed.as_words, self.state)
        total = self.sum(words if is_source else jax.tree_util.tree_map(np.zeros_like, words))
        self.state = jax.tree_util.tree_map(distributed.from_words, total, self.state)
        if not is_source:
            log.info("took over the state of step %d", steps[source])
        self.step = steps[source]
