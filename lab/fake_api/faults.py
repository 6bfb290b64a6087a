"""Fault injection for the fake API server."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from kube.errors import KubeError, Unavailable
from kube.request import Request


def everything(_request: Request) -> bool:
    """Matches every request."""
    return True


@dataclass
class _Fault:
    error: KubeError
    remaining: int
    match: Callable[[Request], bool]
    after: bool


class Faults:
    """The planned faults of a fake API server; each fault is removed after it has occurred."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[_Fault] = []

    def fail_next(
        self, error: KubeError, count: int = 1, *, match: Callable[[Request], bool] = everything
    ) -> None:
        """Makes the next `count` matching requests fail without effect."""
        self._plan(_Fault(error, count, match, after=False))

    def lose_answers(
        self, count: int = 1, *, match: Callable[[Request], bool] = everything
    ) -> None:
        """Makes the next `count` matching requests take effect, but loses their responses."""
        self._plan(_Fault(Unavailable("the connection broke"), count, match, after=True))

    def clear(self) -> None:
        """Removes all planned faults."""
        with self._lock:
            self._faults.clear()

    def before(self, request: Request) -> None:
        """Raises the fault planned for an incoming request."""
        self._raise(request, after=False)

    def after(self, request: Request) -> None:
        """Raises the fault planned for an outgoing response."""
        self._raise(request, after=True)

    def _plan(self, fault: _Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def _raise(self, request: Request, *, after: bool) -> None:
        with self._lock:
            for fault in self._faults:
                if fault.after is after and fault.match(request):
                    fault.remaining -= 1
                    if fault.remaining <= 0:
                        self._faults.remove(fault)
                    raise fault.error
