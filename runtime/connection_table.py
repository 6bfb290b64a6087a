"""Decides which connections a server keeps; their number is limited in total and for each address. No I/O.

A connection is busy while the server answers its request. Otherwise it waits for its peer, and may be
dropped for a new connection. So a client that opens too many connections displaces its own, and a new
caller gets a connection no matter how many silent ones are open.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class ConnectionAdmission(Generic[K]):
    """The verdict on a new connection."""

    admitted: bool
    dropped: K | None = None
    """The connection that must be closed to admit the new one."""


@dataclass(slots=True)
class _Address(Generic[K]):
    """The connections of one address. Dicts are ordered: the connection that has waited longest is first."""

    unproven: dict[K, None] = field(default_factory=dict)
    """Waiting connections that have not sent a whole request yet."""
    proven: dict[K, None] = field(default_factory=dict)
    """Connections that wait after an answer."""
    busy: set[K] = field(default_factory=set)

    @property
    def count(self) -> int:
        return len(self.unproven) + len(self.proven) + len(self.busy)

    @property
    def waiting(self) -> int:
        return len(self.unproven) + len(self.proven)

    def longest_waiting(self) -> K | None:
        """Returns the connection to drop first; None if all are busy."""
        return next(iter(self.unproven or self.proven), None)


class ConnectionTable(Generic[K]):
    """The connections of one server.

    Args:
        max_connections: Connections in total, at least 1.
        max_per_address: Connections of one address, at least 1.
    """

    def __init__(self, max_connections: int, max_per_address: int) -> None:
        self._max, self._max_per_address = max_connections, max_per_address
        self._addresses: dict[str, _Address[K]] = {}
        self._address_of: dict[K, str] = {}

    def __len__(self) -> int:
        return len(self._address_of)

    def add(self, connection: K, address: str) -> ConnectionAdmission[K]:
        """Admits a new connection; if the server is full, the new connection takes the place of a waiting one.

        If the new connection's address has too many connections, a waiting one of this address is
        dropped. Otherwise, if the server is full, a waiting one of the address with the most
        connections is dropped. Connections that have not sent a request yet are dropped first, then
        the one that has waited longest. If none is waiting, the new connection is refused.
        """
        dropped = None
        own = self._addresses.get(address)
        if own is not None and own.count >= self._max_per_address:
            dropped = own.longest_waiting()
            if dropped is None:
                return ConnectionAdmission(admitted=False)
        elif len(self) >= self._max:
            waiting = (holder for holder in self._addresses.values() if holder.waiting)
            heaviest = max(waiting, key=lambda holder: holder.count, default=None)
            dropped = heaviest.longest_waiting() if heaviest is not None else None
            if dropped is None:
                return ConnectionAdmission(admitted=False)
        if dropped is not None:
            self.remove(dropped)
        self._address_of[connection] = address
        self._addresses.setdefault(address, _Address()).unproven[connection] = None
        return ConnectionAdmission(admitted=True, dropped=dropped)

    def begin_answer(self, connection: K) -> None:
        """Notes that a whole request has arrived: the connection is not dropped until `end_answer`."""
        holder = self._holder(connection)
        if holder is not None:
            holder.unproven.pop(connection, None)
            holder.proven.pop(connection, None)
            holder.busy.add(connection)

    def end_answer(self, connection: K) -> None:
        """Notes that the server waits for the next request."""
        holder = self._holder(connection)
        if holder is not None and connection in holder.busy:
            holder.busy.remove(connection)
            holder.proven[connection] = None

    def remove(self, connection: K) -> None:
        """Removes a connection; ignores an unknown one."""
        address = self._address_of.pop(connection, None)
        if address is None:
            return
        holder = self._addresses[address]
        holder.unproven.pop(connection, None)
        holder.proven.pop(connection, None)
        holder.busy.discard(connection)
        if not holder.count:
            del self._addresses[address]

    def _holder(self, connection: K) -> _Address[K] | None:
        address = self._address_of.get(connection)
        return None if address is None else self._addresses[address]
