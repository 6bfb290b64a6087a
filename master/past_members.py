"""What a rendezvous remembers of processes that are no members any more. Pure."""

from typing import Any

from master.membership import Member, MemberId
from master.protocol import RendezvousPoll

_MAX_REMEMBERED = 1024


class BoundedMemory:
    """A map of past processes to a value each, limited in size; the oldest are forgotten."""

    def __init__(self) -> None:
        self._values: dict[MemberId, Any] = {}

    def __contains__(self, member_id: MemberId) -> bool:
        return member_id in self._values

    def get(self, member_id: MemberId, default: Any = None) -> Any:
        """The value of a process."""
        return self._values.get(member_id, default)

    def add(self, member_id: MemberId, value: Any = True) -> None:
        """Stores the value of a process."""
        self._values.pop(member_id, None)
        self._values[member_id] = value
        if len(self._values) > _MAX_REMEMBERED:
            del self._values[next(iter(self._values))]

    def forget(self, member_id: MemberId) -> None:
        """Forgets a process, if it is there."""
        self._values.pop(member_id, None)


class PastMembers:
    """Processes that left, were dropped, or whose name a newer process has."""

    def __init__(self) -> None:
        self.replaced, self.left = BoundedMemory(), BoundedMemory()
        self._dropped = BoundedMemory()
        """Dropped members -> the patience that each has when it returns."""
        self._halted = BoundedMemory()
        """Members dropped because their main thread was stuck -> their newest progress."""

    def record_drop(self, member: Member, *, is_halted: bool) -> None:
        """Notes that a member was dropped, because its main thread was stuck or for silence."""
        member_id, at = member.slot.member_id, member.at
        self._dropped.add(member_id, member.patience * 2)
        if is_halted:
            progress = at, member.ready_at == at > 0, member.broken_at == at > 0
            self._halted.add(member_id, progress)

    def record_entry(self, member_id: MemberId) -> None:
        """Notes that a process is a member (again)."""
        self._halted.forget(member_id)

    def has_ended(self, member_id: MemberId) -> bool:
        """Whether a process has left, or a newer one has its name."""
        return member_id in self.left or member_id in self.replaced

    def was_dropped(self, member_id: MemberId) -> bool:
        """Whether a process was dropped."""
        return member_id in self._dropped

    def patience(self, member_id: MemberId) -> float:
        """The factor of a member's time limits."""
        patience: float = self._dropped.get(member_id, 1.0)
        return patience

    def may_enter(self, call: RendezvousPoll) -> bool:
        """Whether a caller may enter: not after it left, nor while its main thread makes no progress."""
        member_id = call.trainer, call.incarnation
        progress: object = self._halted.get(member_id)
        return member_id not in self.left and progress != (call.at, call.ready, call.broken)
