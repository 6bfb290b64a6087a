"""Who trains together in a synchronous job: this member's side of the master's rendezvous.

Two threads speak with the master over a connection each: one waits for news, one says at once
what has changed here. The program's own thread never waits for the network, but in `next`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edl import clock, wire
from edl.backoff import Backoff
from edl.client import Client
from edl.connection import Connection
from edl.errors import MasterError, Refused, Unavailable
from edl.settings import Settings
from edl.wire import Meeting, Member

log = logging.getLogger("edl")

POLL_S = 1.0
"""How long a call waits at the master for news: a member that is not heard for 3 s is dropped."""
SUSPICIOUS_S = 0.75
"""The master is told at once who waits so long: it looks whether a member is frozen."""
_LOOK_S = 0.25
"""How often to look whether the program waits."""
_ANSWER_S = 3.0
_MOST_BACKOFF_S = 0.5
"""Members must be heard again within 3 s when the master is back."""
_STALL_S = 1.0
"""The thread that looks is late by so much: the process stood still, or its machine is crowded."""
_TOLD_AFTER_S = 0.3
"""A master that is away for less is not worth a line."""
_JOIN_S = 2.0


@dataclass(frozen=True)
class Round:
    """Who trains together, as one of them sees it."""

    number: int
    rank: int
    """This member's place; 0 is the oldest."""
    members: tuple[Member, ...]
    """By rank."""

    @property
    def world(self) -> int:
        """How many there are."""
        return len(self.members)


class Rendezvous:
    """Thread-safe, but for `next`, which is for one thread."""

    def __init__(
        self,
        client_settings: Settings,
        incarnation: str,
        address: str,
        code: Mapping[str, str] | None = None,
    ) -> None:
        """Calls nobody yet.

        Args:
            client_settings: Where the master is, and who this trainer is.
            incarnation: Of this process.
            address: `host:port`, where the other members reach this one.
            code: What all members must have alike: the program, in short.
        """
        self._settings = client_settings
        self._who = (client_settings.trainer, incarnation)
        self._address, self._code = address, dict(code or {})
        self._clients = [self._client(), self._client()]
        self._threads = [
            threading.Thread(target=run, args=(client,), name=name, daemon=True)
            for run, client, name in zip(
                (self._poll, self._speak), self._clients, ("edl-rendezvous", "edl-rendezvous-say")
            )
        ]
        self._changed = threading.Condition()
        self._acts: list[Callable[[], None]] = []
        self._newest = Meeting(0, (), formed=False, probe=0, void=0)
        self._present: Meeting | None = None
        """The round that the program is in."""
        self._ready = self._broken = False
        self._busy = False
        self._waiting_since_s: float | None = None
        self._looked_s = clock.monotonic_s()
        """When a thread last looked whether the program waits."""
        self._stood_still = False
        """Whether that thread came late by so much that the process may have been frozen."""
        self._told_waiting_s: float | None = None
        """The wait of which the master was told because it is long."""
        self._version, self._told = 1, 0
        """How often something has changed here, and how often it had when the master heard last."""
        self._leaving = self._has_left = self._closed = False
        self._error: Refused | None = None
        self._away: Unavailable | None = None
        self._away_since_s = 0.0
        self._told_away = False

    # -- for the program ---------------------------------------------------------------------

    def start(self) -> None:
        """Makes this trainer a member, from the next round on."""
        for thread in self._threads:
            thread.start()

    def next(self, after: int, *, broken: bool = False) -> Round:
        """Waits for a round later than `after` that has this member, and enters it.

        Args:
            after: The round that the program was in; 0 before the first.
            broken: Whether that one is of no use any more, so that the master makes another.

        Raises:
            Refused: The other members run another program, or a newer process has this
                trainer's name.
            Unavailable: The master was away for longer than `patience_s`, or this member has
                left.
        """
        with self._changed:
            if broken:
                self._say_broken()
            while (found := self._later(after)) is None:
                self._changed.wait(self._patience())
            self._present = self._newest
            self._ready = self._broken = False
            self._waiting_since_s = None
            self._say()
        return found

    def newer(self, than: int) -> bool:
        """Whether a later round is known, or `next` would raise. Cheap: for every step."""
        return self._newest.round > than or self._error is not None

    def on_news(self, act: Callable[[], None]) -> None:
        """Acts when the round that the program is in cannot go on: a blocked exchange must end.

        It is called on a thread of this class, at each answer of the master until the program
        has entered a later round, never after that. It must be quick, and wait for nothing.
        """
        self._acts.append(act)

    def ready(self, number: int) -> None:
        """The program can train in this round: it has its connections and the model's state."""
        with self._changed:
            if self._present is not None and self._present.round == number:
                self._ready = True
                self._say()

    def waiting(self, since_s: float | None) -> None:
        """The program waits for other members since this time (monotonic); None: no more."""
        self._waiting_since_s = since_s

    def stalled(self) -> bool:
        """Whether this process may have stood still since it was asked last. Cheap: for every step.

        The others may go on without a member that is frozen for a second, and it cannot know.
        """
        if not self._stood_still and clock.monotonic_s() - self._looked_s < _STALL_S:
            return False
        if self._away is not None:
            return False  # while the master is away nobody takes anybody's place
        self._look()
        self._stood_still = False
        return True

    def busy(self, *, now: bool) -> None:
        """Whether the program does something that others can only wait for, such as an evaluation.

        The master drops nobody for that; it is said with the next call, within a second.
        """
        self._busy = now

    def leave(self, timeout_s: float) -> None:
        """Says that this member is in no later round; calls go on until `close`."""
        with self._changed:
            if not self._threads[1].is_alive():
                return
            self._leaving = True
            self._say()
            if not self._changed.wait_for(lambda: self._has_left or self._over, timeout_s):
                log.warning("the master did not hear that this trainer leaves: it will miss it")

    def close(self) -> None:
        """Ends threads and connections; the master drops a member that has not left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for client in self._clients:
            client.close()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(_JOIN_S)

    # -- inside ------------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return self._closed or self._error is not None

    def _client(self) -> Client:
        found = self._settings
        return Client(Connection(found.master, found.token), *self._who)

    def _say(self) -> None:
        """Something has changed that the master is to hear at once."""
        self._version += 1
        self._changed.notify_all()

    def _say_broken(self) -> None:
        if not self._broken:
            self._broken = True
            self._say()

    def _later(self, after: int) -> Round | None:
        if self._error is not None:
            raise self._error
        if self._leaving or self._closed:
            raise Unavailable("this trainer has left the rendezvous")
        newest = self._newest
        if newest.round <= after:
            return None
        rank = self._rank(newest)
        if rank is None:
            self._say_broken()  # one that was dropped comes again only if it can train
            return None
        return Round(newest.round, rank, newest.members)

    def _rank(self, meeting: Meeting) -> int | None:
        who = self._who
        found = (i for i, m in enumerate(meeting.members) if (m.trainer, m.incarnation) == who)
        return next(found, None)

    def _patience(self) -> float:
        """How long to wait before looking again."""
        if self._away is None:
            return self._settings.patience_s
        left_s = self._away_since_s + self._settings.patience_s - clock.monotonic_s()
        if left_s <= 0:
            raise self._away
        return left_s

    # -- threads -----------------------------------------------------------------------------

    def _poll(self, client: Client) -> None:
        """Waits for news."""
        backoff = Backoff(most_s=_MOST_BACKOFF_S)
        while not self._over:
            self._call(client, backoff, POLL_S)

    def _speak(self, client: Client) -> None:
        """Says what has changed, at once."""
        backoff = Backoff(most_s=_MOST_BACKOFF_S)
        while self._has_to_say():
            if self._leaving and not self._has_left:
                self._quit(client, backoff)
            else:
                self._call(client, backoff, 0.0)

    def _has_to_say(self) -> bool:
        """Waits for something to say; False at the end."""
        with self._changed:
            while not self._over:
                self._look()
                if self._version != self._told or self._waits_long():
                    return True
                self._changed.wait(self._until_look_s())
        return False

    def _look(self) -> None:
        """Notes the time; after a freeze this thread may run before the program does."""
        now_s = clock.monotonic_s()
        self._stood_still |= now_s - self._looked_s >= _STALL_S
        self._looked_s = now_s

    def _waits_long(self) -> bool:
        since_s = self._waiting_since_s
        if since_s is None or since_s == self._told_waiting_s:
            return False
        return clock.monotonic_s() >= since_s + SUSPICIOUS_S

    def _until_look_s(self) -> float:
        since_s = self._waiting_since_s
        if since_s is None or since_s == self._told_waiting_s:
            return _LOOK_S
        return max(0.0, since_s + SUSPICIOUS_S - clock.monotonic_s())

    def _call(self, client: Client, backoff: Backoff, wait_s: float) -> None:
        with self._changed:
            body, version, since_s = self._body(), self._version, self._waiting_since_s
        try:
            found = client.meet(body, wait_s, _ANSWER_S)
        except MasterError as error:
            self._failed(error, backoff)
            return
        backoff.reset()
        with self._changed:
            self._told = max(self._told, version)
            if body["waiting_s"] >= SUSPICIOUS_S:
                self._told_waiting_s = since_s
        self._enter(found)

    def _quit(self, client: Client, backoff: Backoff) -> None:
        try:
            client.quit(_ANSWER_S)
        except MasterError as error:
            self._failed(error, backoff)
            return
        with self._changed:
            self._has_left = True
            self._changed.notify_all()

    def _body(self) -> wire.Json:
        newest, present, since_s = self._newest, self._present, self._waiting_since_s
        claim = None
        if self._rank(newest) is not None:
            members = [vars(member) for member in newest.members]
            claim = {"round": newest.round, "members": members}
        return {
            "address": self._address,
            "code": self._code,
            "seen": newest.round,
            "at": 0 if present is None else present.round,
            "ready": self._ready,
            "broken": self._broken,
            "left": self._has_left,
            "busy": self._busy,
            "waiting_s": 0.0 if since_s is None else max(0.0, clock.monotonic_s() - since_s),
            "probe": newest.probe,
            "claim": claim,
        }

    def _enter(self, found: Meeting) -> None:
        """An answer has come; two of them may come in the wrong order."""
        with self._changed:
            before = self._newest
            if self._told_away:
                away_s = clock.monotonic_s() - self._away_since_s
                log.info("the master's rendezvous is back after %.1f s", away_s)
            self._away, self._told_away = None, False
            if found.round < before.round:
                found = Meeting(
                    before.round, before.members, before.formed, found.probe, before.void
                )
            self._newest = found
            if self._ends(found):
                self._act()
            self._changed.notify_all()

    def _ends(self, found: Meeting) -> bool:
        """Whether the round that the program is in cannot go on beside this later one."""
        present = self._present
        if present is None or present.round >= found.round:
            return False
        return found.void >= present.round

    def _act(self) -> None:
        """With the lock: `next` gives no later round before, so nothing breaks that one."""
        for act in self._acts:
            act()

    def _failed(self, error: MasterError, backoff: Backoff) -> None:
        """The master is away, which passes; or it refuses, which does not."""
        with self._changed:
            if self._closed:
                return
            if not isinstance(error, Refused):
                pause_s = self._note_away(error, backoff)
                self._changed.wait_for(lambda: self._closed, pause_s)
            elif self._error is None:
                self._error = error
                log.error("the rendezvous is over for this trainer: %s", error)
                self._act()
                self._changed.notify_all()

    def _note_away(self, error: MasterError, backoff: Backoff) -> float:
        now_s = clock.monotonic_s()
        if self._away is None:
            self._away_since_s = now_s
        self._away = error if isinstance(error, Unavailable) else Unavailable(str(error))
        if not self._told_away and now_s >= self._away_since_s + _TOLD_AFTER_S:
            self._told_away = True
            log.warning("%s; the round goes on, and the rendezvous is tried again", error)
        self._changed.notify_all()
        return backoff.next_s()
