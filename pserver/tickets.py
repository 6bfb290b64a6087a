"""Who may do something for all servers: one at a time, for a while. Kept by server 0 alone."""

from dataclasses import dataclass

SETTLE, SAVE = "settle", "save"
SETTLE_S = 30.0
"""To initialise or restore all servers; another may try when it is over."""
SAVE_S = 120.0
"""To write a checkpoint on all servers."""


@dataclass(frozen=True, slots=True)
class _Lease:
    number: int
    holder: str
    until_s: float


class Tickets:
    """Numbered from 1 on; a newer ticket replaces one that has run out."""

    def __init__(self) -> None:
        self._numbers = 0
        self._leases: dict[str, _Lease] = {}

    def ask(self, kind: str, holder: str, now_s: float, lease_s: float) -> int | None:
        """A ticket, or None while somebody else has one.

        Who has one and asks again gets another: the answer may have been lost.
        """
        lease = self._leases.get(kind)
        if lease is not None and lease.holder != holder and now_s < lease.until_s:
            return None
        self._numbers += 1
        self._leases[kind] = _Lease(self._numbers, holder, now_s + lease_s)
        return self._numbers

    def held(self, kind: str, now_s: float) -> bool:
        """Whether somebody has one."""
        lease = self._leases.get(kind)
        return lease is not None and now_s < lease.until_s

    def give_back(self, kind: str, holder: str) -> None:
        """Who has one does not need it; nothing happens where it is another's."""
        lease = self._leases.get(kind)
        if lease is not None and lease.holder == holder:
            self.end(kind)

    def end(self, kind: str) -> None:
        """It was used, or is of no use any more."""
        self._leases.pop(kind, None)
