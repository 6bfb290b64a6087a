"""One trainer's membership of a job: joins, describes, leaves; on SIGTERM it leaves in time."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from edl import clock, stopping, wire
from edl.backoff import Backoff
from edl.book import Book
from edl.calls import Calls
from edl.client import Client
from edl.connection import Connection
from edl.errors import EdlError, MasterError, Refused, Unavailable
from edl.heart import Heart, lost_books
from edl.settings import Settings

log = logging.getLogger("edl")
T = TypeVar("T")

_LEAVE_S = 0.2
"""Of the grace: for each of the last words to a master that may be away."""
_LEAVE_ANSWER_S = 3.0
"""For the answer to a leave, where no grace ends: the master makes sure first that nothing of this
trainer's is lost with it."""
_LAST_WORDS = 3
"""A call whose answer is not known, the last report, the leave."""


class Session:
    """Thread-safe. Most programs need none of their own: `edl.batches` uses `edl.session()`."""

    def __init__(self, found: Settings) -> None:
        """Knows where the master is; `join` is what calls it."""
        self.settings = found
        self.book = Book()
        self.calls = Calls(self.book)
        self.job = found.job
        self.joins = 0
        """How often a master has been joined."""
        self.stopping = False
        """Whether SIGTERM came, or the master said stop."""
        self.exits = False
        """Whether this process is to exit with 143."""
        self._incarnation = secrets.token_hex(8)
        self._pid = os.getpid()
        self._control = self.client()
        self._loops: list[Loop] = []
        self._described: dict[str, wire.Json] = {}
        self._lock = threading.RLock()
        self._joining = threading.Lock()
        self._left = threading.Event()
        self._out = threading.Event()
        self._terminating = threading.Event()
        self._until_s: float | None = None
        """When this process ends at the latest, once SIGTERM came."""
        self._watch: stopping.Watch | None = None
        self._heart: Heart | None = None

    @property
    def incarnation(self) -> str:
        """Random; another process of the same name has another."""
        return self._incarnation

    @property
    def over(self) -> bool:
        """Whether it left, or belongs to the process that this one was forked from."""
        return self._left.is_set() or os.getpid() != self._pid

    @property
    def lead(self) -> wire.Json | None:
        """What whoever leads a group says when it joins again; nothing of any other trainer."""
        return None

    def client(self) -> Client:
        """A client of this incarnation with a connection of its own."""
        found = self.settings
        return Client(Connection(found.master, found.token), found.trainer, self._incarnation)

    def join(self) -> None:
        """Joins the job, and waits for a master that is still starting; once.

        Raises:
            Unavailable: The master was away longer than `patience_s`.
            Refused: The token is wrong, or the master serves another job.
        """
        with self._lock:
            self.check()
            if self.joins:
                return
            self._listen()
            try:
                found = self._patiently(self._control.join)
                self._enter(found)
            except MasterError:
                self._give_up()
                raise
            log.info(
                "joined job %s at %s as %s", self.job, self.settings.master, self.settings.trainer
            )
            self._heart = Heart(self, found.heartbeat_s)
            self._heart.start()
            atexit.register(self._end_in_time)
            atexit.register(self.leave)

    def _listen(self) -> None:
        """For SIGTERM, before the first call: nothing else ends a container's first process."""
        if self._watch is None:
            self._watch = stopping.Watch(self._terminated)
            if not self._watch.install():
                log.info("this program keeps SIGTERM for itself: edl leaves when it exits")

    def _give_up(self) -> None:
        """Not joined: nothing stays open, and SIGTERM is as it was."""
        self._control.close()
        self._control = self.client()
        if self._watch is not None:
            self._watch.remove()
            self._watch = None

    def rejoin(self, seen: int) -> None:
        """The master knows this trainer no more: joins it and tells what it may not know.

        Args:
            seen: `joins`, as read before the call that it refused: later joins make this one
                needless.

        Raises:
            MasterError: It is away again, or it refuses.
        """
        with self._joining:
            if self.joins != seen:
                return
            if self.over:
                raise Unavailable("this trainer has left the job")
            told = self.book.held()
            done = self.book.unsafe()
            held = [{"task": one["task"], "attempt": one["attempt"]} for one in told]
            for name, description in list(self._described.items()):
                self._control.describe(name, description)  # before what was done of it is told
            found = self._control.join(done, held, self.lead)
            self._enter(found)
            self.book.lose(told, found.lost)
        log.warning(
            "another master serves job %s (generation %d): told it of %d tasks held and %d done",
            self.job,
            found.generation,
            len(held),
            len(done),
        )

    def describe(self, name: str, description: wire.Json) -> wire.Json:
        """Describes a data set and returns the description in force; waits as `join` does."""
        self._described[name] = description
        return self._patiently(lambda: self._known(self._control.describe, name, description))

    def ask_to_save(self, newest: int = 0) -> wire.Ticket:
        """Whether this trainer shall save a checkpoint now.

        Args:
            newest: Version of the newest that is there; the ticket's is greater.
        """
        self.join()
        return self._known(self._control.ask_to_save, newest)

    def control(self) -> Client:
        """For calls that need no more care than one try."""
        self.join()
        return self._control

    def saved(self, ticket: str, *, path: str, step: int, ok: bool) -> None:
        """Tells the master what became of a checkpoint."""
        self._control.saved(ticket, path=path, step=step, ok=ok)

    def progress(self) -> wire.Json:
        """Data set -> how far the job is with it."""
        return dict(self._control.status().get("datasets", {}))

    def stepped(self) -> None:
        """A step was made."""
        if self._heart is not None:
            self._heart.moved()

    def register(self, loop: Loop) -> None:
        """A loop that is to hear of stops."""
        with self._lock:
            self._loops.append(loop)

    def release(self, loop: Loop) -> None:
        """The loop ended."""
        with self._lock:
            if loop in self._loops:
                self._loops.remove(loop)

    def check(self) -> None:
        """Ends the program where it is to end.

        Raises:
            SystemExit: SIGTERM came; the code is 143.
        """
        if self.exits:
            self.leave()
            sys.exit(stopping.EXIT_CODE)

    def stop(self, reason: str = "asked to", error: EdlError | None = None) -> None:
        """Loops end after the batch in hand; for programs with a signal handler of their own.

        Args:
            reason: For the log.
            error: What loops raise at their end.
        """
        if not self.stopping:
            log.info("stopping: %s", reason)
        self.stopping = True
        for loop in list(self._loops):
            loop.wake(error)

    def leave(self) -> None:
        """Hands back what is held and leaves; once, and never for long."""
        with self._lock:
            if self._left.is_set() or not self.joins or os.getpid() != self._pid:
                return
            self._left.set()
        if self._heart is not None:
            self._heart.stop()
        for loop in list(self._loops):
            loop.wake(None)
        last = self.client()
        told = "" if self.settle(last) else "; the master did not hear all that was trained"
        back, counts = self.book.clear(), self.book.counts
        try:
            last.leave(back, answer_s=self._answer_s())
        except MasterError:
            told = "; the master did not hear it and will miss this trainer's heartbeat"
        last.close()
        log.info(
            "%s left job %s: %d records trained, %d acknowledged, %d in vain, %d tasks handed back%s",
            self.settings.trainer,
            self.job,
            counts.trained,
            counts.acknowledged,
            counts.wasted,
            len(back),
            told,
        )
        self._control.close()
        self._out.set()
        atexit.unregister(self.leave)
        if self._watch is not None and not self.exits:
            self._watch.remove()

    def _answer_s(self) -> float:
        if self._until_s is None:
            return _LEAVE_ANSWER_S
        return max(_LEAVE_S, self._until_s - clock.monotonic_s() - _LEAVE_S)

    def settle(self, client: Client, *, back: str | None = None) -> bool:
        """Tells the master what is done or failed, in short tries; False if it did not hear.

        Args:
            client: Whose connection to use.
            back: A data set whose other tasks are handed back.
        """
        with self.calls.turn(_LEAVE_S) as mine:
            try:
                if mine and self.calls.open is not None:
                    at_once = replace(self.calls.open, wait_s=0.0)
                    self.calls.send(client, at_once, _LEAVE_S)
                report = self.book.report()
                if back is not None:
                    report.back = self.book.unfinished(back)
                if report:
                    self.calls.send(client, self.calls.order(report, {}), _LEAVE_S)
            except MasterError:
                return False
        return True

    def _known(self, act: Callable[..., T], *args: Any) -> T:
        """Does it, and joins before where the master does not know this trainer."""
        seen = self.joins
        try:
            return act(*args)
        except Refused as error:
            if not lost_books(error):
                raise
        self.rejoin(seen)
        return act(*args)

    def _patiently(self, act: Callable[[], T]) -> T:
        """Does it, as often as the master is away."""
        backoff, until_s = Backoff(), clock.monotonic_s() + self.settings.patience_s
        while True:
            try:
                return act()
            except Unavailable as error:  # noqa: PERF203 - it waits much longer than this costs
                self._pause(backoff, until_s, error)

    def _pause(self, backoff: Backoff, until_s: float, error: Unavailable) -> None:
        if clock.monotonic_s() > until_s or self._left.is_set():
            raise error
        if backoff.tries == 1:
            log.warning("%s; trying again for %g s", error, self.settings.patience_s)
        self._terminating.wait(backoff.next_s())
        self.check()

    def _enter(self, found: wire.Welcome) -> None:
        wanted = self.settings.job
        if wanted and found.job != wanted:
            with contextlib.suppress(MasterError):
                self._control.leave([], answer_s=_LEAVE_S)
            text = f"EDL_JOB is {wanted!r}, but the master serves {found.job!r}"
            raise Refused(409, text, "job")
        self.job = found.job
        self.calls.generation = found.generation
        self.joins += 1

    def _end_in_time(self) -> None:
        """After SIGTERM, once all was said: what a framework does at its end may take seconds."""
        if self.exits and os.getpid() == self._pid:
            logging.shutdown()
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(stopping.EXIT_CODE)

    def _terminated(self) -> None:
        """SIGTERM: the main thread has until the grace's end to leave by itself."""
        self._until_s = until_s = clock.monotonic_s() + self.settings.grace_s
        self.exits = True
        self._terminating.set()
        threading.Thread(target=_exit_at, args=(until_s,), name="edl-exit", daemon=True).start()
        self.stop(f"SIGTERM: leaving within {self.settings.grace_s:g} s")
        if not self._out.wait(max(0.0, self.settings.grace_s - _LAST_WORDS * _LEAVE_S)):
            log.info("the batch in hand takes longer than the grace: its tasks are handed back")
            self.leave()


class Loop:
    """What a session knows of a loop."""

    def wake(self, error: EdlError | None) -> None:
        """The session stops; the loop raises the error, if there is one."""
        raise NotImplementedError


def _exit_at(until_s: float) -> None:
    """Whatever the program is doing by then, the process ends."""
    threading.Event().wait(max(0.0, until_s - clock.monotonic_s()))
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(stopping.EXIT_CODE)
