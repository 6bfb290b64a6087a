"""Rounds for programs in JAX: members sum pytrees, and come and go without a restart of the others.

Each member is a separate JAX process with its own devices. `edl.collective` exchanges sums and
states through the host (decision 0068).
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from edl.collective import Interrupt, Listener, Ring
from edl.errors import RoundOver
from edl.jax import trees
from edl.master.protocol import Round
from edl.master.rounds import Rounds
from edl.master.session import Session, session

log = logging.getLogger("edl")

_REMEMBERED = 64
"""Number of rounds whose last steps members remember."""


class JaxRounds:
    """An iterator over rounds, in which members sum pytrees.

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

    When a round begins, all members have the `state` of the member with the largest `step`. Members
    that take it over get it as numpy arrays.

    Args:
        state: A pytree of numbers and arrays, with the same structure in all members.
        code: Values that must be equal in all members, by name, such as a program version.
        member: This trainer's session; the process's by default.

    Raises:
        DataError: The state contains other values, such as a key of `jax.random.key`.
    """

    def __init__(
        self, state: Any, *, code: Mapping[str, str] | None = None, member: Session | None = None
    ) -> None:
        """Makes no call yet."""
        own = session() if member is None else member
        digest = hashlib.sha256(trees.signature(state).encode()).hexdigest()[:16]
        shared = {"jax": str(jax.__version__), "state": digest, **(code or {})}
        self._key = own.settings.token.encode()
        self._interrupt = Interrupt()
        port = own.settings.exchange_port
        self._listener = Listener("" if port else own.settings.address, port)
        self._rounds = Rounds(
            self._listener.address[1], code=shared, on_broken=self._interrupt.set, member=own
        )
        self._ring: Ring | None = None
        self._number = 0
        self._last_steps: dict[int, int] = {}
        """Round -> the last step made in it, for the rounds in which the state was trained."""
        self._first_step = 0
        """Number of steps that the state contained when the current round began."""
        self._interrupted: tuple[int, int] | None = None
        """Round and step of the sum that was interrupted by the end of its round."""
        self.state = state
        """The pytree that members share; the program replaces it after each step."""
        self.step = 0
        """Number of steps that the state contains."""
        self.has_counted = False
        """Whether this member's interrupted sum counts; set when the next round begins.

        True if other members completed the sum and made the step, so its batch is trained.
        """

    def __enter__(self) -> JaxRounds:  # noqa: PYI034 - Self needs Python 3.11
        self._rounds.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._close_ring()
        self._rounds.__exit__(*error)
        self._listener.close()
        self._interrupt.close()

    def __iter__(self) -> Iterator[Round]:
        """Waits for the next round, brings all members to the same state, and yields the round.

        Raises:
            Refused: The other members run a different program, or their state has a different structure.
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
        """Whether to end the current round, because a later one begins or this trainer leaves."""
        return self._rounds.changed

    def sum(self, tree: Any) -> Any:
        """Sums a pytree of numbers and arrays over all members; of booleans, it counts the true ones.

        Returns:
            A pytree of the same structure, the same in all members. The only member of a round gets
            `tree` itself.

        Raises:
            RoundOver: A member is lost: call `broken`, and continue in the next round.
        """
        if self._ring is None:
            raise RoundOver("this member is in no round")
        try:
            if self._ring.world_size == 1:
                self._ring.check()
                return tree
            return trees.sum_over(self._ring, tree)
        except RoundOver:
            self._interrupted = self._number, self.step
            raise

    def broken(self) -> None:
        """Reports at once that the current round is broken, because a sum failed."""
        self._rounds.broken()
        self._close_ring()

    def finish(self) -> None:
        """Marks this trainer as finished: it takes part in no later round."""
        self._rounds.finish()

    def _begin(self, round_: Round) -> None:
        """Connects the members of a round, and brings them to the newest state."""
        self._close_ring()
        if self.step > self._first_step:
            self._last_steps[self._number] = self._first_step = self.step
            for number in sorted(self._last_steps)[:-_REMEMBERED]:
                del self._last_steps[number]
        self._ring = ring = Ring.connect(
            self._listener,
            [member.address for member in round_.members],
            round_.rank,
            number=round_.number,
            key=self._key,
            interrupt=self._interrupt,
            on_wait=self._rounds.waiting,
        )
        self._number = round_.number
        if round_.world_size > 1:
            self._take_newest(ring)
        self.has_counted = self._counts_in(self._last_steps)
        self._interrupted = None
        self._rounds.ready()

    def _counts_in(self, last_steps: Mapping[int, int]) -> bool:
        """Returns whether a state that was trained in these rounds contains the interrupted step."""
        if self._interrupted is None:
            return False
        number, step = self._interrupted
        return last_steps.get(number, 0) > step

    def _take_newest(self, ring: Ring) -> None:
        """Takes over the state of the member that has made the most steps.

        Members that made the same steps in the same rounds have the same state. If only one member
        completed the last step of a round, and the others made the step again in the next round,
        the state of the newer round wins.
        """
        own = json.dumps([self.step, sorted(self._last_steps.items())]).encode()
        reports = [json.loads(payload) for payload in ring.gather(own)]
        newest = max(reports, key=_age)
        if newest[0] and all(report == newest for report in reports):
            return
        source = reports.index(newest)
        is_source = source == ring.rank
        _, arrays = ring.broadcast(trees.as_bytes(self.state) if is_source else None, b"", source)
        if is_source:
            return
        self.state = trees.from_bytes(arrays, self.state)
        self.step = self._first_step = newest[0]
        self._last_steps = dict(newest[1])
        log.info("took over the state of step %d", self.step)

    def _close_ring(self) -> None:
        ring, self._ring = self._ring, None
        if ring is not None:
            ring.close()


def _age(report: list[Any]) -> tuple[int, int]:
    """Returns a sort key for members' reports: the steps, then the round of the last step."""
    step, last_steps = report
    return step, max((number for number, _ in last_steps), default=0)
