"""The processes of one pod, which hold one replica together: the first process leads the others.

When one process ends, calls of the others raise `TrainingError`, so they end, too. Then
`edl agent --replica` starts all of them again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

from edl.errors import RoundOver, TrainingError
from edl.master import protocol
from edl.overriding import override
from edl.sync.round_start import encode_json
from edl.torch.groups.link import GroupLink
from edl.torch.groups.waiting import Waiting
from edl.torch.pods import commands
from edl.torch.pods.commands import Announcer, Command
from edl.torch.pods.news import PodNews

T = TypeVar("T")

_TIMEOUT = timedelta(hours=6)
"""Never reached, because a wait ends when a process or the pod ends."""


class _NoNews:
    is_set = False


class Pod(Announcer):
    """A process's connection to the other processes of its pod; used by one thread.

    All processes make the same calls in the same order. The first process announces commands, the
    others receive them; a command that may fail ends with `agree`.
    """

    def __init__(self, mesh: Any) -> None:
        """Connects the processes; all of them call it.

        Args:
            mesh: A one-dimensional mesh, with all processes of the default group.
        """
        self.rank, self.size = mesh.get_local_rank(), mesh.size()
        self.group = dist.new_group(backend="gloo", timeout=_TIMEOUT)
        """Separate from the mesh's group, whose operations may run on a GPU."""
        self._link = GroupLink(self.group, self.rank, self.size, Waiting(_NoNews()))
        if self.is_first:
            self.news, self.first_pid = PodNews(), os.getpid()
            hello = encode_json({"path": self.news.path, "pid": self.first_pid})
            self._together(lambda: self._link.broadcast([], hello, 0))
        else:
            raw, _ = self._together(lambda: self._link.receive(0))
            hello_fields = json.loads(raw)
            self.news, self.first_pid = PodNews(hello_fields["path"]), hello_fields["pid"]
        self.gather({})
        if self.is_first:
            self.news.remove()

    @property
    def is_first(self) -> bool:
        """Whether this process talks to the master and leads the others."""
        return bool(self.rank == 0)

    @override
    def announce(self, command: Command) -> None:
        self._together(lambda: self._link.broadcast([], commands.encode(command), 0))

    @override
    def repeat(self, command: Command) -> None:
        self.announce(command)
        require_ok(self.gather({"ok": True}))

    @contextlib.contextmanager
    @override
    def exchange(self, command: Command, number: int) -> Iterator[None]:
        self.announce(command)
        try:
            yield
        except RoundOver:
            self.end_round(number)
            self.agree(ok=False)
            raise
        require_ok(self.gather({"ok": True}))

    @override
    def end_round(self, number: int) -> None:
        self.news.write(number)

    def receive(self) -> Command:
        """Waits for the next command of the first process."""
        raw, _ = self._together(lambda: self._link.receive(0))
        return commands.decode(raw)

    def gather(self, report: protocol.Json) -> list[protocol.Json]:
        """Returns the reports of all processes, in order of rank."""
        payloads = self._together(lambda: self._link.gather(encode_json(report)))
        return [json.loads(payload) for payload in payloads]

    def agree(self, *, ok: bool = True) -> bool:
        """Returns whether all processes pass True."""
        return all(report["ok"] for report in self.gather({"ok": ok}))

    def _together(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except RoundOver as error:
            raise TrainingError(
                "another process of this pod has ended: this one ends, too, so that edl agent --replica "
                "starts all of them again"
            ) from error


def require_ok(reports: Iterable[protocol.Json]) -> None:
    """Checks the reports of all processes of a pod on an exchange with the other pods.

    Raises:
        RoundOver: The exchange failed in one of them, so the round cannot continue.
    """
    if not all(report["ok"] for report in reports):
        raise RoundOver("a process of this pod has lost its connection to other pods")
