"""`edl agent`: one member of the rendezvous for all processes of a pod, in torchrun's place.

In each round it starts the processes with the environment of torchrun. When members change it ends
them and starts them again; the script continues from its own checkpoint, as under torchrun.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Sequence

from edl.agent.environment import Place, sizes_of, worker_environment
from edl.agent.snapshot_keeper import SnapshotKeeper, open_keeper, stand_aside
from edl.agent.workers import FAILED, STUCK, Workers, failed_too_often
from edl.data.batches import batches
from edl.errors import MasterError, RoundOver
from edl.local.ports import free_ports
from edl.master.protocol import Round
from edl.master.rounds import Rounds
from edl.master.session import Session, session
from edl.sources.function import from_function

log = logging.getLogger("edl")

_POLL_S = 0.05
_STOP_S = 10.0
"""How long processes may take to end when members change."""
_GRACE_SHARE = 0.6
"""Of the time from SIGTERM to exit: the rest is for the last snapshot and the report to the master."""
_FLUSH_SHARE = 0.2
_RUN = "run"
"""Name of the data set of one record that stands for the run: the job is done with it."""
_REPORTED = "reported"
"""The key by which the agent of rank 0 says that the end is reported to the master."""
_MAX_COMMAND = 300


class Agent:
    """The processes of one pod as one member: it starts them for each round and stops them after it."""

    def __init__(
        self,
        command: Sequence[str],
        processes: int,
        max_restarts: int,
        member: Session | None = None,
        *,
        snapshot_bytes: int = 0,
    ) -> None:
        """Makes no call yet.

        Args:
            command: An absolute path, and arguments.
            processes: How many to start.
            max_restarts: How often processes that failed are started again.
            member: This agent's session; that of the process by default.
            snapshot_bytes: Of memory for snapshots; 0 for as much as there is.
        """
        self._command, self._processes, self._max_restarts = list(command), processes, max_restarts
        self._session = session() if member is None else member
        self._snapshot_bytes = snapshot_bytes
        self._keeper: SnapshotKeeper | None = None
        self._failures = 0
        self._failed_with: frozenset[str] | None = None
        """The incarnations of the round in which a process failed last."""
        self._failure = ""
        """How it failed, in words."""
        self._is_stuck = False
        """Whether a process lives on after SIGKILL, with what it holds of its device."""

    def run(self) -> int:
        """Takes part in rounds until all processes have finished; returns the exit code.

        Raises:
            Refused: The other agents run another command.
            Unavailable: The master was away for too long.
            SystemExit: SIGTERM came, and the processes have ended; the exit code is 143.
        """
        self._keeper = open_keeper(self._session.settings, self._snapshot_bytes)
        try:
            return self._run_rounds(0 if self._keeper is None else self._keeper.port)
        finally:
            if self._keeper is not None:
                self._keeper.close()

    def _run_rounds(self, port: int) -> int:
        code = {"agent": " ".join(self._command)[:_MAX_COMMAND]}
        extra = str(self._processes)
        with Rounds(port, extra=extra, code=code, member=self._session) as rounds:
            for round_ in rounds:
                if self._has_failed_too_often(round_):
                    return FAILED
                try:
                    place = Place(
                        round_.rank,
                        sizes_of([member.extra for member in round_.members]),
                        round_.number,
                    )
                    is_over = self._run_round(round_, place, rounds)
                except RoundOver as error:
                    log.info("round %d is over: %s", round_.number, error)
                    rounds.broken()
                    is_over = False
                if self._is_stuck:
                    return FAILED
                if is_over:
                    rounds.finish()
        return 0

    def _run_round(self, round_: Round, place: Place, rounds: Rounds) -> bool:
        """Runs the processes in one round; returns whether they, and all others, have finished.

        Raises:
            RoundOver: A process has failed, or the round is over.
        """
        store = rounds.store
        if round_.rank == 0:
            address = f"{self._session.settings.address}:{free_ports(1)[0]}"
            store.set("address", address.encode())
        address = store.get("address").decode()
        if self._keeper is None:
            stand_aside(round_, store)
        else:
            self._keeper.enter(round_, place, store)
        workers = Workers(self._command, self._environments(place, address))
        rounds.ready()
        log.info("round %d: processes %d to %d of %d", *_numbers(place))
        try:
            while not rounds.changed:
                workers.wait(_POLL_S)
                failure = workers.failure
                if failure:
                    rounds.broken()  # the others need not wait until the rest has ended here
                    self._failed_with = _incarnations(round_)
                    self._failure = failure
                    raise RoundOver(failure)
                if workers.have_finished:
                    return self._wait_for_others(round_, rounds)
            return False
        finally:
            stopping = self._session.stopping
            grace_s = self._session.settings.grace_s * _GRACE_SHARE
            if not workers.stop(grace_s if stopping else _STOP_S):
                self._is_stuck = True
                log.error("%s; this agent ends, so that its pod is replaced", STUCK)
            if stopping and self._keeper is not None:
                self._keeper.flush(self._session.settings.grace_s * _FLUSH_SHARE)

    def _wait_for_others(self, round_: Round, rounds: Rounds) -> bool:
        """Waits for the processes of all agents; False if members change before these have finished.

        The agent of rank 0 reports the end to the master. The others leave after that, so that none
        of them ends the round for an agent that still waits.
        """
        store, is_first = rounds.store, round_.rank == 0
        store.set(f"finished/{round_.rank}", b"1")
        finished = [f"finished/{rank}" for rank in range(round_.world_size)]
        try:
            while not store.check(finished if is_first else [_REPORTED]):
                if rounds.changed:
                    return self._is_job_done()
                threading.Event().wait(_POLL_S)
        except RoundOver:
            if not self._is_job_done():
                raise
            return True
        if is_first:
            self._finish_job()
            with contextlib.suppress(RoundOver):
                store.set(_REPORTED, b"1")
        return True

    def _is_job_done(self) -> bool:
        """Returns whether the agent of rank 0 has reported the end."""
        try:
            return self._session.control().status().get("state") == "done"
        except MasterError as error:
            log.info("cannot read the job's state: %s", error)
            return False

    def _environments(self, place: Place, address: str) -> list[dict[str, str]]:
        kept = {} if self._keeper is None else self._keeper.environment()
        return [
            worker_environment(
                place,
                local_rank,
                address,
                run_id=self._session.job or "edl",
                restarts=self._failures,
                max_restarts=self._max_restarts,
                environ={**os.environ, **kept, "EDL_TRAINER": self._session.settings.trainer},
            )
            for local_rank in range(self._processes)
        ]

    def _has_failed_too_often(self, round_: Round) -> bool:
        """Counts a failure, unless a member was lost in it; whether there were too many."""
        failed_with, self._failed_with = self._failed_with, None
        if failed_with is None or not failed_with <= _incarnations(round_):
            return False
        self._failures += 1
        if self._failures <= self._max_restarts:
            return False
        trainer = self._session.settings.trainer
        text = failed_too_often(trainer, self._failures, self._max_restarts, self._failure)
        log.error("%s", text)
        try:
            self._session.control().fail(text)
        except MasterError as error:
            log.warning("the failure could not be reported to the master: %s", error)
        return True

    def _finish_job(self) -> None:
        """Reports to the master that the run is done, as the only record of a data set."""
        run = from_function(_RUN, lambda number: number, 1)
        for _ in batches(run, 1, member=self._session):
            pass


def _incarnations(round_: Round) -> frozenset[str]:
    return frozenset(member.incarnation for member in round_.members)


def _numbers(place: Place) -> tuple[int, int, int, int]:
    first = place.first_rank
    return place.number, first, first + place.sizes[place.rank] - 1, place.world_size
