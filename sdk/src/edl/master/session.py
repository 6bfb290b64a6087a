"""A trainer's session with the master: joins the job, describes data sets, leaves on SIGTERM.

Each process is one trainer; `session` returns the session of this process.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from edl import clock
from edl.backoff import Backoff
from edl.errors import EdlError, MasterError, Refused, Unavailable
from edl.master import protocol, sigterm
from edl.master.client import LAST_CALL_S, Client, WorkCalls
from edl.master.connection import Connection
from edl.master.heartbeat import Heartbeat, HeartbeatSession, call_joined
from edl.master.leases import LeaseTable
from edl.master.settings import Settings, load
from edl_protocol.master import VERSION

log = logging.getLogger("edl")
T = TypeVar("T")

_LEAVE_ANSWER_S = 3.0
"""Timeout for leaving without a SIGTERM; the master answers once this trainer's results are durable."""
_LOG_AFTER_TRIES = 6
"""Number of tries before a warning is logged.

These tries take at least two seconds; a master that starts together with its trainers serves earlier.
"""
_LAST_CALLS = 3
"""Number of calls when leaving: the repeated unanswered call, the last report, and the leave call."""


class Session:
    """A trainer's membership of a job; thread-safe.

    Most programs need not create one: `edl.batches` uses `edl.session()`.
    """

    def __init__(
        self,
        settings: Settings,
        lease_table: LeaseTable | None = None,
        gives_up: Callable[[], bool] | None = None,
    ) -> None:
        """Creates the session; `join` makes the first call to the master.

        Args:
            settings: The settings of the process.
            lease_table: Leases that this trainer holds already; by default it holds none.
            gives_up: Called while the master is away; returns whether to stop retrying.
        """
        self.settings, self._gives_up = settings, gives_up
        self.lease_table = LeaseTable() if lease_table is None else lease_table
        self.work_calls = WorkCalls(self.lease_table)
        self.job = settings.job
        self.joins = 0
        """How often this session has joined a master."""
        self.stopping = False
        """Whether the process received SIGTERM, or the master requested a stop."""
        self.exits = False
        """Whether this process must exit with 143."""
        self.lead: protocol.Json | None = None
        """The `lead` field for a rejoin, set in the leader of a group; None in other trainers."""
        self._incarnation = secrets.token_hex(8)
        self._pid = os.getpid()
        self._control = self.client()
        self._loops: list[Loop] = []
        self._described: dict[str, protocol.Json] = {}
        self._lock = threading.RLock()
        self._joining = threading.Lock()
        self._has_left = threading.Event()
        self._leave_done = threading.Event()
        self._terminating = threading.Event()
        self._until_s: float | None = None
        """Time at which this process must have ended after SIGTERM; None before SIGTERM."""
        self._watcher: sigterm.SigtermWatcher | None = None
        self._heartbeat: Heartbeat | None = None

    @property
    def incarnation(self) -> str:
        """Random id of this process, which distinguishes processes with the same trainer name."""
        return self._incarnation

    @property
    def over(self) -> bool:
        """Whether the session has left the job, or belongs to the parent of this forked process."""
        return self._has_left.is_set() or os.getpid() != self._pid

    def client(self) -> Client:
        """Returns a client of this incarnation with a separate connection."""
        settings = self.settings
        connection = Connection(settings.master, settings.token)
        return Client(connection, settings.trainer, self._incarnation)

    def join(self) -> None:
        """Joins the job, unless the session has joined already; waits for a master that is still starting.

        Raises:
            Unavailable: The master was away for longer than `patience_s`.
            Refused: The token is wrong, or the master serves another job.
        """
        with self._lock:
            self.check()
            if self.joins:
                return
            self._watch_sigterm()
            try:
                response = self.retry_while_away(self.enter)
            except MasterError:
                self._undo_join()
                raise
            log.info(
                "joined job %s at %s as %s", self.job, self.settings.master, self.settings.trainer
            )
            self.start_heartbeat(self, response.heartbeat_s)
            atexit.register(self._exit_without_teardown)
            atexit.register(self.leave)

    def enter(
        self,
        done: Sequence[protocol.Json] = (),
        held_tasks: Sequence[protocol.Json] = (),
        lead: protocol.Json | None = None,
    ) -> protocol.JoinResponse:
        """Tries to join once; takes the arguments of `Client.join`.

        Raises:
            MasterError: The master is away, refuses the call, or serves another job.
        """
        response = self._control.join(done, held_tasks, lead)
        expected_job = self.settings.job
        if expected_job and response.job != expected_job:
            with contextlib.suppress(MasterError):
                self._control.leave([], answer_s=LAST_CALL_S)
            text = f"EDL_JOB is {expected_job!r}, but the master serves {response.job!r}"
            raise Refused(409, text, "job")
        if response.protocol != VERSION:
            log.info(
                "the master uses protocol version %d, this program %d",
                response.protocol,
                VERSION,
            )
        self.job = response.job
        self.work_calls.generation = response.generation
        self.joins += 1
        return response

    def start_heartbeat(self, session: HeartbeatSession, every_s: float) -> None:
        """Starts heartbeats for this session, or for a session that wraps it."""
        self._heartbeat = Heartbeat(session, every_s)
        self._heartbeat.start()

    def _watch_sigterm(self) -> None:
        """Installs the SIGTERM handler, before the first call to the master.

        Without a handler, a container's PID 1 ignores SIGTERM.
        """
        if self._watcher is None:
            self._watcher = sigterm.SigtermWatcher(self._on_sigterm)
            if not self._watcher.install():
                log.info("this program handles SIGTERM itself: edl leaves the job at exit")

    def _undo_join(self) -> None:
        """Closes the connection of a failed join, and restores the handling of SIGTERM."""
        self._control.close()
        self._control = self.client()
        if self._watcher is not None:
            self._watcher.remove()
            self._watcher = None

    def rejoin(self, joins_before: int) -> None:
        """Joins a new master that does not know this trainer, and sends it the state that it may lack.

        Args:
            joins_before: Value of `joins` before the refused call; if another thread has joined since,
                nothing is done.

        Raises:
            MasterError: The master is away again, or refuses a call.
        """
        with self._joining:
            if self.joins != joins_before:
                return
            if self.over:
                raise Unavailable("this trainer has left the job")
            entries = self.lease_table.held_entries()
            done = self.lease_table.not_yet_durable()
            refs = [{"task": entry["task"], "attempt": entry["attempt"]} for entry in entries]
            for name, description in list(self._described.items()):
                self._control.describe(name, description)  # before its tasks are reported
            response = self.enter(done, refs, self.lead)
            self.lease_table.drop_lost(entries, response.lost)
        log.warning(
            "a new master serves job %s (generation %d): sent it %d held and %d done tasks",
            self.job,
            response.generation,
            len(refs),
            len(done),
        )

    def describe(self, name: str, description: protocol.Json) -> protocol.Json:
        """Describes a data set and returns the description in force; retries while the master is away."""
        self._described[name] = description
        return self.retry_while_away(
            lambda: call_joined(self, lambda: self._control.describe(name, description))
        )

    def request_save(self, newest: int = 0) -> protocol.Ticket:
        """Asks whether this trainer should save a checkpoint now.

        Args:
            newest: Version of the newest existing checkpoint; the ticket's version is greater.
        """
        self.join()
        return call_joined(self, lambda: self._control.request_save(newest))

    def control(self) -> Client:
        """Joins if necessary, and returns the client for calls without retries."""
        self.join()
        return self._control

    def report_saved(self, ticket: str, *, path: str, step: int, ok: bool) -> None:
        """Reports to the master whether a checkpoint was saved."""
        self._control.report_saved(ticket, path=path, step=step, ok=ok)

    def progress(self) -> protocol.Json:
        """Returns the job's progress by data set."""
        return dict(self._control.status().get("datasets", {}))

    def stepped(self) -> None:
        """Records a step, so that the next heartbeat is sent soon."""
        if self._heartbeat is not None:
            self._heartbeat.note_progress()

    def register(self, loop: Loop) -> None:
        """Adds a loop whose `wake` is called when the session stops."""
        with self._lock:
            self._loops.append(loop)

    def release(self, loop: Loop) -> None:
        """Removes a loop that has ended."""
        with self._lock:
            if loop in self._loops:
                self._loops.remove(loop)

    def check(self) -> None:
        """Exits the program with code 143 if it received SIGTERM.

        Raises:
            SystemExit: The process received SIGTERM.
        """
        if self.exits:
            self.leave()
            sys.exit(sigterm.EXIT_CODE)

    def stop(self, reason: str = "asked to", error: EdlError | None = None) -> None:
        """Ends all loops after the current batch; programs with their own signal handler may call this.

        Args:
            reason: The reason, for the log.
            error: The error that the loops raise at their end; None for a normal end.
        """
        if not self.stopping:
            log.info("stopping: %s", reason)
        self.stopping = True
        for loop in list(self._loops):
            loop.wake(error)

    def leave(self) -> None:
        """Hands back all held tasks and leaves the job, unless it was left already; all waits are bounded."""
        with self._lock:
            if self._has_left.is_set() or not self.joins or os.getpid() != self._pid:
                return
            self._has_left.set()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        for loop in list(self._loops):
            loop.wake(None)
        client = self.client()
        note = "" if self.work_calls.flush(client) else "; could not report all results"
        back, counts = self.lease_table.clear(), self.lease_table.counts
        try:
            client.leave(back, answer_s=self._leave_answer_s())
        except MasterError:
            note = "; could not tell the master, which will notice missing heartbeats"
        client.close()
        work = counts.summary(len(back))
        log.info("%s left job %s%s%s", self.settings.trainer, self.job, work, note)
        self._control.close()
        self._leave_done.set()
        atexit.unregister(self.leave)
        if self._watcher is not None and not self.exits:
            self._watcher.remove()

    def abandon(self) -> None:
        """Ends this session without calling the master, because another process has replaced it."""
        self._has_left.set()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self._control.close()
        self._leave_done.set()

    def _leave_answer_s(self) -> float:
        if self._until_s is None:
            return _LEAVE_ANSWER_S
        return max(LAST_CALL_S, self._until_s - clock.monotonic_s() - LAST_CALL_S)

    def retry_while_away(self, call: Callable[[], T]) -> T:
        """Makes a call and repeats it while the master is away, for up to `patience_s`."""
        backoff, until_s = Backoff(), clock.monotonic_s() + self.settings.patience_s
        while True:
            try:
                return call()
            except Unavailable as error:  # noqa: PERF203 - the call takes far longer than try
                self._pause(backoff, until_s, error)

    def _pause(self, backoff: Backoff, until_s: float, error: Unavailable) -> None:
        given_up = self._gives_up is not None and self._gives_up()
        if given_up or clock.monotonic_s() > until_s or self._has_left.is_set():
            raise error
        if backoff.tries == _LOG_AFTER_TRIES:
            log.warning("%s; retrying for %g s", error, self.settings.patience_s)
        self._terminating.wait(backoff.next_s())
        self.check()

    def _exit_without_teardown(self) -> None:
        """Exits after SIGTERM without the teardown of frameworks, which may take seconds."""
        if self.exits and os.getpid() == self._pid:
            logging.shutdown()
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(sigterm.EXIT_CODE)

    def _on_sigterm(self) -> None:
        """Lets the main thread leave the job; leaves in its place shortly before the grace period ends."""
        self._until_s = until_s = clock.monotonic_s() + self.settings.grace_s
        self.exits = True
        self._terminating.set()
        threading.Thread(target=_exit_at, args=(until_s,), name="edl-exit", daemon=True).start()
        self.stop(f"SIGTERM: leaving within {self.settings.grace_s:g} s")
        if not self._leave_done.wait(max(0.0, self.settings.grace_s - _LAST_CALLS * LAST_CALL_S)):
            log.info("the current batch takes longer than the grace period: handing back its tasks")
            self.leave()


class Loop:
    """A loop that a session can stop."""

    def wake(self, error: EdlError | None) -> None:
        """Stops the loop; if there is an error, the loop raises it."""
        raise NotImplementedError


def _exit_at(until_s: float) -> None:
    """Ends the process at the given time, whatever the program is doing."""
    threading.Event().wait(max(0.0, until_s - clock.monotonic_s()))
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(sigterm.EXIT_CODE)


_default: Session | None = None
_default_lock = threading.Lock()


def session() -> Session:
    """Returns the session of this process, created from the environment by the first call.

    Raises:
        SettingError: A variable is missing or invalid, for example EDL_MASTER.
    """
    global _default  # noqa: PLW0603 - each process has one session
    with _default_lock:
        if _default is None or (_default.over and not _default.exits):
            set_up_logging()
            _default = Session(load())
        return _default


def set_up_logging() -> None:
    """Logs one-line messages to stderr, unless the program has configured logging."""
    if not log.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s edl %(message)s", "%H:%M:%S"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
