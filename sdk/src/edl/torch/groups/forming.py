"""Forms a process group of torch for each round, without a restart of the process."""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import torch.distributed as dist

from edl.errors import DataError, one_line
from edl.master.protocol import Round
from edl.master.round_store import RoundStore
from edl.overriding import override
from edl.torch.groups.keys import GroupKeys
from edl.torch.groups.store import MasterStore
from edl.torch.groups.waiting import Waiting

_TIMEOUT = timedelta(hours=6)
"""Time-out of gloo's operations. EDL's waits end earlier, because the master reports lost members."""
_RANK_BITS = 31


class Groups(Protocol):
    """Forms process groups, one for each round."""

    def form(self, round_: Round, store: MasterStore, waiting: Waiting) -> Any:
        """Returns a group of the round's members; all of them call it.

        Raises:
            RoundOver: A member is lost.
        """
        ...

    def abandon(self, works: list[Any]) -> None:
        """Ends the newest group, even if its operations have not ended.

        Args:
            works: Operations that were started and that no call waits for any more.
        """
        ...

    def close(self) -> None:
        """Closes all connections whose operations have ended, so that other members do not wait."""
        ...

    def keep(self) -> None:
        """Never destroys the newest group: in a forked child, its destructor would wait for ever."""
        ...


class FreshGroups(Groups):
    """Creates a new gloo group for each round, as torchft does; torch 2.7 and newer."""

    def __init__(self, address: str) -> None:
        """Makes no connection yet.

        Args:
            address: The host name or IP address at which the other members reach this member.

        Raises:
            DataError: No network interface of this machine has the address.
        """
        self._make_device = _device_maker(address)
        self._group: Any = None
        self._store: MasterStore | None = None
        """Kept as long as the group, because torch's C++ object does not keep the Python object alive."""
        self._abandoned = _AbandonedGroups()

    @override
    def form(self, round_: Round, store: MasterStore, waiting: Waiting) -> Any:
        self._abandoned.release_ended()

        def connect() -> Any:
            options = _options(self._make_device)
            return dist.ProcessGroupGloo(store, round_.rank, round_.world_size, options)

        self._store = store
        self._group = waiting.call(connect)
        return self._group

    @override
    def abandon(self, works: list[Any]) -> None:
        group, self._group = self._group, None
        self._abandoned.add(group, works)

    @override
    def close(self) -> None:
        self._group = None
        self._abandoned.release_ended()

    @override
    def keep(self) -> None:
        _keep(self._group)


class ReconfiguredGroups(Groups):
    """Reconnects one gloo group for each round; torch 2.15 and newer.

    If a peer is frozen, operations of an abandoned round never end and occupy the threads of the
    group. In that case the group is abandoned, and the next round gets a new one.
    """

    def __init__(self, address: str) -> None:
        """Makes no connection yet."""
        self._make_device = _device_maker(address)
        self._serving: _Reconfigurable | None = None
        self._abandoned = _AbandonedGroups()

    @override
    def form(self, round_: Round, store: MasterStore, waiting: Waiting) -> Any:
        self._abandoned.release_ended()
        serving, self._serving = self._serving, None
        if serving is None:
            serving = _Reconfigurable(self._make_device)
        waiting.call(lambda: serving.connect(round_, store))
        self._serving = serving  # only now: an interrupted call may still use the group
        return serving.group

    @override
    def abandon(self, works: list[Any]) -> None:
        if self._serving is not None and self._abandoned.add(self._serving, works):
            self._serving = None

    @override
    def close(self) -> None:
        self._serving = None
        self._abandoned.release_ended()

    @override
    def keep(self) -> None:
        if self._serving is not None:
            _keep(self._serving.group)


class _Reconfigurable:
    """A group that can be reconnected; its store follows the newest round."""

    def __init__(self, make_device: Callable[[], Any]) -> None:
        """Makes no connection yet."""
        self._store = MasterStore()
        options = _options(make_device)
        options.enable_reconfigure = True
        # handles must differ between members, and torch makes a new group's handle from this rank
        rank = secrets.randbits(_RANK_BITS)
        self.group = dist.ProcessGroupGloo(self._store, rank, 1, options)

    def connect(self, round_: Round, store: MasterStore) -> None:
        """Connects the members of a round; all of them call it."""
        self._store.follow(store)
        store.set(f"handle/{round_.rank}", self.group.get_reconfigure_handle())
        names = [f"handle/{rank}" for rank in range(round_.world_size)]
        options = dist.distributed_c10d.ReconfigureOptions()
        options.uuid = round_.number
        options.handles = [raw.decode() for raw in store.multi_get(names)]
        self.group.reconfigure(options).wait()


class _AbandonedGroups:
    """Groups with operations that do not end, because a peer is frozen or unreachable."""

    def __init__(self) -> None:
        self._groups: list[tuple[Any, list[Any]]] = []

    def add(self, group: Any, works: list[Any]) -> bool:
        """Keeps a group until all given operations have ended; returns whether any is still running."""
        pending = [work for work in works if not work.is_completed()]
        if group is not None and pending:
            _keep(group)  # its destructor would wait for the operations, even at exit
            self._groups.append((group, pending))
        return bool(pending)

    def release_ended(self) -> None:
        """Drops groups whose operations have ended because frozen members were killed."""
        waiting = []
        for group, works in self._groups:
            if all(work.is_completed() for work in works):
                ctypes.pythonapi.Py_DecRef(ctypes.py_object(group))
            else:
                waiting.append((group, works))
        self._groups = waiting


def _keep(group: Any) -> None:
    """Adds a reference that Python never drops, so that the group is not destroyed."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def form_group(groups: Groups, round_: Round, keys: RoundStore, waiting: Waiting) -> Any:
    """Returns a group of the round's members, which connect through the round's keys; None for one member.

    Raises:
        RoundOver: A member is lost.
    """
    if round_.world_size == 1:
        return None
    return groups.form(round_, MasterStore(GroupKeys(keys, round_.world_size)), waiting)


def gloo_groups(address: str) -> Groups:
    """Returns the fastest kind of groups that this version of torch supports.

    Args:
        address: The host at which the others reach this member.
    """
    has_reconfigure = hasattr(dist.distributed_c10d, "ReconfigureOptions")
    return ReconfiguredGroups(address) if has_reconfigure else FreshGroups(address)


def _options(make_device: Callable[[], Any]) -> Any:
    options = dist.ProcessGroupGloo._Options()  # noqa: SLF001 - the only way to choose the interface
    options._devices = [make_device()]  # noqa: SLF001 - see above
    options._timeout = _TIMEOUT  # noqa: SLF001 - see above
    return options


def _device_maker(address: str) -> Callable[[], Any]:
    """Returns a function that creates gloo's listener at an address; tries the address once."""

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
