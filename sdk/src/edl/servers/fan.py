"""The same call to all servers at once, in as many threads; each again until it is answered."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from edl import clock
from edl.backoff import Backoff
from edl.servers.errors import Away
from edl.servers.link import Link

log = logging.getLogger("edl")
T = TypeVar("T")

_TOLD_AFTER_TRIES = 4
Act = Callable[[Link, int], T]
"""(link, index of the server) -> its answer."""


class Fan:
    """Links to all servers of a job. Used by one thread at a time; `close` by any."""

    def __init__(
        self, urls: Sequence[str], token: str, patience_s: float, stopping: Callable[[], bool]
    ) -> None:
        """Opens no connection yet.

        Args:
            urls: Of the servers, in order of their index.
            token: The job's.
            patience_s: How long one call waits for a server that is away.
            stopping: Whether this program is about to end: then nothing waits any more.
        """
        self.links = [Link(url, token) for url in urls]
        self._patience_s, self._stopping = patience_s, stopping
        self._threads = ThreadPoolExecutor(len(urls), "edl-servers")
        self._closed = threading.Event()

    def __len__(self) -> int:
        return len(self.links)

    def each(self, act: Act[T], servers: Sequence[int] | None = None) -> list[T]:
        """Answers of these servers, all of them by default, in their order.

        Raises:
            ServersError: One of them refused, or was away for too long. What others were told may
                have been done: the same again must do no harm.
        """
        wanted = range(len(self.links)) if servers is None else servers
        given_up = threading.Event()
        if len(wanted) == 1:
            return [self._answer(act, wanted[0], given_up)]
        running = [self._threads.submit(self._answer, act, one, given_up) for one in wanted]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
        finally:
            given_up.set()  # who still waits for a server that is away waits in vain
        wait(running)
        for one in running:
            error = one.exception()
            if error is not None and not isinstance(error, _GivenUp):
                raise error
        return [one.result() for one in running]

    def once(self, act: Act[Any]) -> list[Any]:
        """One try each; None for those that did not answer or refused."""
        running = [self._threads.submit(act, link, one) for one, link in enumerate(self.links)]
        wait(running)
        return [None if one.exception() is not None else one.result() for one in running]

    def close(self) -> None:
        """Ends all connections; calls that wait end at once."""
        self._closed.set()
        for link in self.links:
            link.close()
        self._threads.shutdown(wait=False)

    def _answer(self, act: Act[T], server: int, given_up: threading.Event) -> T:
        link, backoff = self.links[server], Backoff()
        until_s = clock.monotonic_s() + self._patience_s
        while True:
            try:
                found = act(link, server)
            except Away as error:  # noqa: PERF203 - it waits much longer than this costs
                self._pause(error, server, backoff, until_s, given_up)
            else:
                if backoff.tries >= _TOLD_AFTER_TRIES:
                    log.info("parameter server %d answers again", server)
                return found

    def _pause(
        self, error: Away, server: int, backoff: Backoff, until_s: float, given_up: threading.Event
    ) -> None:
        now_s = clock.monotonic_s()
        if self._closed.is_set() or self._stopping():
            raise error
        if now_s > until_s:
            text = (
                f"parameter server {server} was away for more than {self._patience_s:g} s: {error}"
            )
            raise Away(f"{text} (EDL_PATIENCE_S)") from error
        pause_s = backoff.next_s()
        if backoff.tries == _TOLD_AFTER_TRIES:
            log.warning("%s; trying again for %g s", error, self._patience_s)
        if given_up.wait(pause_s):
            raise _GivenUp(str(error)) from error


class _GivenUp(Away):
    """Another server's answer ended the call."""
