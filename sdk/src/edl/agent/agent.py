"""`edl agent`: runs a pod's processes in place of torchrun, as one member of the rendezvous.

In each round the agent starts the processes with torchrun's environment. When members change, it stops
and restarts them, and the script continues from its checkpoint, as it would under torchrun.
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
"""Share of the grace period for stopping processes; the rest is for the last snapshot and the report."""
_FLUSH_SHARE = 0.2
"""Share of the grace period for the last snapshot."""
_RUN = "run"
"""Name of a data set with one record, which stands for the whole run: the job is done when that
record is done."""
_REPORTED = "reported"
"""Key that the agent of rank 0 sets after it has reported the end to the master."""
_MAX_COMMAND = 300


class Agent:
    """Runs the processes of a pod as one member: starts them for each round and stops them after it."""

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
            command: The absolute path of the program, and its arguments.
            processes: Number of processes.
            max_restarts: How often to restart processes after failures.
            member: This agent's session; the process's session by default.
            snapshot_bytes: Memory limit for snapshots in bytes; 0 for no limit.
        """
        self._command, self._processes, self._max_restarts = list(command), processes, max_restarts
        self._session = session() if member is None else member
        self._snapshot_bytes = snapshot_bytes
        self._keeper: SnapshotKeeper | None = None
        self._failures = 0
        self._failed_with: frozenset[str] | None = None
        """Incarnations of the members of the round in which a process last failed."""
        self._failure = ""
        """Description of the last failure."""
        self._is_stuck = False
        """Whether a process survived SIGKILL and still holds resources of its device."""

    def run(self) -> int:
        """Takes part in rounds until all processes have finished; returns the exit code.

        Raises:
            Refused: The other agents run a different command.
            Unavailable: The master was away for too long.
            SystemExit: The agent received SIGTERM and has stopped the processes; the code is 143.
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
        """Runs the processes in one round; returns whether the processes of all agents have finished.

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
        log.info(
            "round %d: processes %d to %d of %d",
            place.number,
            place.first_rank,
            place.first_rank + place.sizes[place.rank] - 1,
            place.world_size,
        )
        try:
            while not rounds.changed:
                workers.wait(_POLL_S)
                failure = workers.failure
                if failure:
                    rounds.broken()  # at once, so that other agents do not wait until these processes stop
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
                log.error("%s; the agent exits, so that the pod is replaced", STUCK)
            if stopping and self._keeper is not None:
                self._keeper.flush(self._session.settings.grace_s * _FLUSH_SHARE)

    def _wait_for_others(self, round_: Round, rounds: Rounds) -> bool:
        """Waits for the processes of all agents; returns False if members change first.

        The agent of rank 0 reports the end to the master. The others leave only after that, because an
        agent that leaves ends the round for agents that are still waiting.
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
        """Counts the last failure unless a member was lost at the same time; returns whether to give up."""
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
            log.warning("could not report the failure to the master: %s", error)
        return True

    def _finish_job(self) -> None:
        """Reports to the master that the run is done, by acknowledging the only record of a data set."""
        run = from_function(_RUN, int, 1)
        for _ in batches(run, 1, member=self._session):
            pass


def _incarnations(round_: Round) -> frozenset[str]:
    return frozenset(member.incarnation for member in round_.members)
