"""What a rendezvous remembers of processes that are no longer members. Pure."""

from edl_protocol.master import RendezvousPoll

from master.membership import MAX_PATIENCE, Member, MemberId
from runtime.bounded_dict import BoundedDict

_MAX_REMEMBERED = 1024


class PastMembers:
    """Processes that left, were dropped, or whose name a newer process has."""

    def __init__(self) -> None:
        self.replaced = BoundedDict[MemberId, None](_MAX_REMEMBERED)
        self.left = BoundedDict[MemberId, None](_MAX_REMEMBERED)
        self._dropped = BoundedDict[MemberId, float](_MAX_REMEMBERED)
        """Dropped members -> the patience that each has when it returns."""
        self._halted = BoundedDict[MemberId, tuple[int, bool, bool]](_MAX_REMEMBERED)
        """Members dropped because their main thread was stuck -> their newest progress."""

    def record_drop(self, member: Member, *, is_halted: bool) -> None:
        """Notes that a member was dropped, because its main thread was stuck or for silence."""
        member_id, at = member.slot.member_id, member.at
        self._dropped[member_id] = min(MAX_PATIENCE, 2 * member.patience)
        if is_halted:
            reached = member.ready_at == at > 0, member.broken_at == at > 0
            self._halted[member_id] = at, *reached

    def record_entry(self, member_id: MemberId) -> None:
        """Notes that a process is a member (again)."""
        self._halted.pop(member_id, None)

    def has_ended(self, member_id: MemberId) -> bool:
        """Whether a process has left, or a newer one has its name."""
        return member_id in self.left or member_id in self.replaced

    def was_dropped(self, member_id: MemberId) -> bool:
        """Whether a process was dropped."""
        return member_id in self._dropped

    def patience(self, member_id: MemberId) -> float:
        """The factor of a member's time limits."""
        return self._dropped.get(member_id, 1.0)

    def may_enter(self, call: RendezvousPoll) -> bool:
        """Whether a caller may enter: not after it left, nor while its main thread makes no progress."""
        member_id = call.trainer, call.incarnation
        progress = self._halted.get(member_id)
        return member_id not in self.left and progress != (call.at, call.ready, call.broken)
