"""Making the fake API server misbehave on purpose."""

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
    left: int
    match: Callable[[Request], bool]
    after: bool


class Faults:
    """What goes wrong next; each planned fault is used up as it happens."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[_Fault] = []

    def fail_next(
        self, error: KubeError, count: int = 1, *, match: Callable[[Request], bool] = everything
    ) -> None:
        """The next `count` requests that match are refused and have no effect."""
        self._plan(_Fault(error, count, match, after=False))

    def lose_answers(
        self, count: int = 1, *, match: Callable[[Request], bool] = everything
    ) -> None:
        """The next `count` requests that match take effect, but their answers get lost."""
        self._plan(_Fault(Unavailable("the connection broke"), count, match, after=True))

    def clear(self) -> None:
        """Nothing more goes wrong."""
        with self._lock:
            self._faults.clear()

    def before(self, request: Request) -> None:
        """Raises what is planned for a request that arrives."""
        self._raise(request, after=False)

    def after(self, request: Request) -> None:
        """Raises what is planned for an answer that leaves."""
        self._raise(request, after=True)

    def _plan(self, fault: _Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def _raise(self, request: Request, *, after: bool) -> None:
        with self._lock:
            for fault in self._faults:
                if fault.after is after and fault.match(request):
                    fault.left -= 1
                    if fault.left <= 0:
                        self._faults.remove(fault)
                    raise fault.error
