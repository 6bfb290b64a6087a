"""The processes of one pod, which hold one replica together: the first one leads the others.

They live and die together: where one has ended, calls of the others raise `TrainingError`, and
`edl agent --replica` starts all of them again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

from edl.errors import RoundOver, TrainingError
from edl.master import protocol
from edl.sync.round_start import encode_json
from edl.torch.groups.link import GroupLink
from edl.torch.groups.waiting import Waiting
from edl.torch.pods.news import PodNews

T = TypeVar("T")

_TIMEOUT = timedelta(hours=6)
"""It ends no wait: the end of a process does, or that of the pod."""


class _NoNews:
    is_set = False


class Pod:
    """The connection of a process to the others of its pod; used by one thread.

    All processes call the same in the same order. What the first one sends, the others receive; a
    command that may fail ends with `agree`.
    """

    def __init__(self, mesh: Any) -> None:
        """Connects them; all of them call it.

        Args:
            mesh: Of one dimension, of all processes of the default group.
        """
        self.rank, self.size = mesh.get_local_rank(), mesh.size()
        self.group = dist.new_group(backend="gloo", timeout=_TIMEOUT)
        """Apart from the mesh, whose operations may be those of a GPU."""
        self._link = GroupLink(self.group, self.rank, self.size, Waiting(_NoNews()))
        hello: protocol.Json = {}
        if self.is_first:
            self.news = PodNews()
            self.send(path=self.news.path, pid=os.getpid())
        else:
            hello = self.receive()
            self.news = PodNews(hello["path"])
        self.first_pid = hello.get("pid", os.getpid())
        self.gather({})
        if self.is_first:
            self.news.remove()

    @property
    def is_first(self) -> bool:
        """Whether this process talks to the master, and leads the others."""
        return bool(self.rank == 0)

    def send(self, **command: Any) -> None:
        """Sends a command to the other processes, which wait for one."""
        self._together(lambda: self._link.broadcast([], encode_json(command), 0))

    def receive(self) -> protocol.Json:
        """Waits for the next command of the first process."""
        raw, _ = self._together(lambda: self._link.receive(0))
        command: protocol.Json = json.loads(raw)
        return command

    def gather(self, report: protocol.Json) -> list[protocol.Json]:
        """Returns the reports of all processes, in order of rank."""
        payloads = self._together(lambda: self._link.gather(encode_json(report)))
        return [json.loads(payload) for payload in payloads]

    def agree(self, *, ok: bool = True) -> bool:
        """Whether all processes say so."""
        return all(report["ok"] for report in self.gather({"ok": ok}))

    def check(self, *, ok: bool = True) -> None:
        """Raises where a process of this pod could not exchange something with the other pods.

        Raises:
            RoundOver: One could not: the round cannot continue.
        """
        require_ok(self.gather({"ok": ok}))

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
        RoundOver: One of them failed: the round cannot continue.
    """
    if not all(report["ok"] for report in reports):
        raise RoundOver("a process of this pod has lost its connection to other pods")
