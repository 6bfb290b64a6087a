"""Process groups of torch that follow the master's rounds, in the same process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import torch.distributed as dist

from edl.errors import DataError, one_line
from edl.master.protocol import Round
from edl.torch.store import MasterStore
from edl.torch.waiting import Waiting

_TIMEOUT = timedelta(hours=6)
"""Of an operation of gloo. It ends no wait of EDL, which ends with news of the master."""


class Groups(Protocol):
    """Makes the process group of each round."""

    def form(self, round_: Round, store: MasterStore, waiting: Waiting) -> Any:
        """Returns a group of these members, for its operations only; all of them call it.

        Raises:
            RoundOver: A member is lost.
        """
        ...

    def abandon(self, works: list[Any]) -> None:
        """Ends the newest group, whatever it is doing.

        Args:
            works: Those that were begun and whose end nobody waits for.
        """
        ...


class FreshGroups:
    """A new gloo group for each round, in the manner of torchft; torch 2.7 and newer."""

    def __init__(self, address: str) -> None:
        """Makes no connection yet.

        Args:
            address: The host, of this member, at which the others reach it.

        Raises:
            DataError: No network interface of this machine has it.
        """
        self._make_device = _device_maker(address)
        self._group: Any = None
        self._store: MasterStore | None = None
        """Kept as long as the group: torch's part of a store does not keep Python's."""
        self._abandoned: list[tuple[Any, list[Any]]] = []

    def form(self, round_: Round, store: MasterStore, waiting: Waiting) -> Any:
        """As in `Groups`."""
        self._release_ended()

        def connect() -> Any:
            options = dist.ProcessGroupGloo._Options()  # noqa: SLF001 - the only way to choose the interface
            options._devices = [self._make_device()]  # noqa: SLF001 - see above
            options._timeout = _TIMEOUT  # noqa: SLF001 - see above
            return dist.ProcessGroupGloo(store, round_.rank, round_.world_size, options)

        self._store = store
        self._group = waiting.call(connect)
        return self._group

    def abandon(self, works: list[Any]) -> None:
        """As in `Groups`."""
        group, self._group = self._group, None
        pending = [work for work in works if not work.is_completed()]
        if group is not None and pending:
            # its destructor waits for its operations, even at the end of the process
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
            self._abandoned.append((group, pending))

    def _release_ended(self) -> None:
        """Lets go of groups whose operations have ended: frozen members were killed meanwhile."""
        waiting = []
        for group, works in self._abandoned:
            if all(work.is_completed() for work in works):
                ctypes.pythonapi.Py_DecRef(ctypes.py_object(group))
            else:
                waiting.append((group, works))
        self._abandoned = waiting


def _device_maker(address: str) -> Callable[[], Any]:
    """Returns what makes gloo's listener at an address; tried once."""

    def make() -> Any:
        return dist.ProcessGroupGloo.create_device(hostname=address)

    try:
        make()
    except RuntimeError as error:
        raise DataError(
            f"torch cannot listen at {address!r:.80} ({one_line(error):.200}): EDL_ADDRESS must be a "
            "host or IP address of this machine at which the other trainers reach it"
        ) from error
    return make
