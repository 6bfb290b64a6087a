"""A model that shows which batches are in it: each batch adds 1 to a number of its own, per server."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import edl
import numpy as np
from edl import servers
from edl.servers import Gradients, Lookup, layout
from numpy.typing import NDArray

from tests.pserver.processes import PserverProcess
from tests.pserver.serving import RunningServer, RunningServers
from tests.pserver.test_app import call
from tests.sdk.conftest import Join
from tests.sdk.servers.trained import Line

RULES = servers.Rules(None, False, 0, 0.0, 3)
"""No checkpoint but those that a test asks for."""


def names(count: int) -> list[str]:
    """Of small parameters: the first lies at server 0, the next at server 1, and so on."""
    return [
        next(
            name
            for name in (f"marks-{number}" for number in range(1000))
            if layout.partition({name: 1}, count)[server]
        )
        for server in range(count)
    ]


def data(batches: int) -> edl.Dataset:
    """Records that are the numbers of their batches: one record makes a batch."""
    return edl.from_function("marks", int, batches)


def gradients(batch: int, batches: int, count: int) -> Gradients:
    """Returns the effect of a batch on the parameters of this number of servers."""
    mark = np.zeros(batches, np.float32)
    mark[batch] = -1
    return Gradients(dict.fromkeys(names(count), mark), {}, {"loss": 0.0})


class Marks(Line):
    """Its parameters say how often each batch was applied, at each server by itself."""

    def __init__(
        self, batches: int, count: int = 2, before: Callable[[Any], object] = lambda _: None
    ) -> None:
        super().__init__(rate=1.0, before=before)
        self._batches, self._count = batches, count

    def initial(self) -> dict[str, Any]:
        """No batch."""
        return {name: np.zeros(self._batches) for name in names(self._count)}

    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        """One mark."""
        del lookup
        self.before(self)
        self.losses.append(0.0)
        return gradients(int(records[0]), self._batches, self._count)


class Kills:
    """Ends servers once a number of batches are computed, one action at a time, for all trainers."""

    def __init__(self, acts: dict[int, Callable[[], object]]) -> None:
        self._pending_acts, self._begun = dict(acts), 0
        self._counting, self._acting = threading.Lock(), threading.Lock()

    def __call__(self, _: Any) -> None:
        """Another batch is computed."""
        with self._counting:
            self._begun += 1
            act = self._pending_acts.pop(self._begun, None)
        if act is not None:
            with self._acting:
                act()


class Pusher:
    """A trainer whose every push a test decides."""

    def __init__(
        self,
        join: Join,
        trainer: str,
        running: RunningServers,
        batches: int,
        rules: servers.Rules = RULES,
    ) -> None:
        self._batches, self._count = batches, len(running.all)
        self.member = join(trainer, servers=running.urls, patience_s=60.0)
        self.servers = servers.connect(Marks(batches), rules=rules, member=self.member)

    def push(self, *batches: int) -> None:
        """Ten records each."""
        for batch in batches:
            step = gradients(batch, self._batches, self._count)
            assert self.servers.push(step, self.servers.next_number(), 10).applied

    def enter(self) -> None:
        """After servers went back."""
        self.servers.enter()
        self.servers.pull()

    def leave(self) -> None:
        """Its process ends."""
        self.servers.close()
        self.member.leave()


def applied_counts(
    join: Join, running: Sequence[RunningServer] | Sequence[PserverProcess]
) -> NDArray[np.int64]:
    """How often each batch is in the part of each server: [server, batch]."""
    final = servers.fetch(member=join("reader", servers=tuple(server.url for server in running)))
    marks = np.stack([final.dense[name] for name in names(len(running))]).astype(int)
    versions = [call(server, "GET", "/v1/status")[1]["version"] for server in running]
    assert marks.sum(axis=1).tolist() == versions, "the servers' versions count other batches"
    return marks
