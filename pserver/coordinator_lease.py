"""Leases for coordinating all servers: one trainer at a time holds one. Only server 0 grants them.

A call that asks for a lease is answered with its number, the ticket.
"""

from dataclasses import dataclass

SETTLE, SAVE = "settle", "save"
SETTLE_S = 30.0
"""For initialising or restoring all servers; after that another trainer may try."""
SAVE_S = 120.0
"""For writing a checkpoint on all servers."""


@dataclass(frozen=True, slots=True)
class _Lease:
    holder: str
    until_s: float


class CoordinatorLeases:
    """The leases by kind. Tickets are numbered from 1; a new lease replaces an expired one."""

    def __init__(self) -> None:
        self._numbers = 0
        self._leases: dict[str, _Lease] = {}

    def acquire(self, kind: str, holder: str, now_s: float, lease_s: float) -> int | None:
        """A ticket, or None while another holder has the lease.

        A holder that asks again gets a new ticket: the first answer may have been lost.
        """
        lease = self._leases.get(kind)
        if lease is not None and lease.holder != holder and now_s < lease.until_s:
            return None
        self._numbers += 1
        self._leases[kind] = _Lease(holder, now_s + lease_s)
        return self._numbers

    def is_held(self, kind: str, now_s: float) -> bool:
        """Whether the lease is held."""
        lease = self._leases.get(kind)
        return lease is not None and now_s < lease.until_s

    def release(self, kind: str, holder: str) -> None:
        """Releases the lease of this holder; has no effect on the lease of another one."""
        lease = self._leases.get(kind)
        if lease is not None and lease.holder == holder:
            self.end(kind)

    def end(self, kind: str) -> None:
        """Ends the lease of any holder."""
        self._leases.pop(kind, None)
