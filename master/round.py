"""A round of the rendezvous: its members, and what keeps them from training together. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from master.membership import BoundedMemory, Member, MemberId, Slot

FORMING_S = 60.0
"""Members that have not reached a round by then hold up all others: they are dropped. One that
has reached it may take as long as for a step."""

LiveMembers = Mapping[str, Member]
"""All live members of a job by trainer, also those that are not in the round."""


@dataclass(slots=True)
class Round:
    """A fixed list of members that train together."""

    number: int
    slots: tuple[Slot, ...]
    """By rank."""
    since_s: float
    formed: bool = False
    """Whether all members were ready in it."""
    deadlocked: bool = False
    """Whether all members wait for each other."""
    _member_ids: frozenset[MemberId] = frozenset()

    def __post_init__(self) -> None:
        self._member_ids = frozenset(slot.member_id for slot in self.slots)

    def has(self, member_id: MemberId) -> bool:
        """Whether a process is in it."""
        return member_id in self._member_ids

    def consists_of(self, live: LiveMembers) -> bool:
        """Whether exactly the live members are in it."""
        return self._member_ids == {member.slot.member_id for member in live.values()}

    def includes(self, live: LiveMembers) -> bool:
        """Whether all live members are in it: there are no newcomers."""
        return all(self.has(member.slot.member_id) for member in live.values())

    def present(self, live: LiveMembers) -> list[Member]:
        """Live members of the round, by rank."""
        members = (live.get(slot.trainer) for slot in self.slots)
        return [
            member for member in members if member is not None and self.has(member.slot.member_id)
        ]

    def is_usable(self, member: Member) -> bool:
        """Whether a member can continue in the round."""
        return member.broken_at < self.number or not self.has(member.slot.member_id)

    def is_ready(self, live: LiveMembers) -> bool:
        """Whether all its members are ready to train."""
        present = self.present(live)
        if not present or len(present) < len(self.slots):
            return False
        return all(m.ready_at >= self.number and self.is_usable(m) for m in present)

    def is_impossible(self, live: LiveMembers, leavers: BoundedMemory) -> bool:
        """Whether the round cannot continue.

        Args:
            live: The live members.
            leavers: Processes that left on their own.
        """
        present = self.present(live)
        if self.deadlocked or not all(map(self.is_usable, present)):
            return True
        present_ids = {member.slot.member_id for member in present}
        missing_ids = (slot.member_id for slot in self.slots if slot.member_id not in present_ids)
        if self.formed:  # a member that leaves stays until the next round
            return any(member_id not in leavers for member_id in missing_ids)
        return any(True for _ in missing_ids)

    def is_idle(self, live: LiveMembers) -> bool:
        """Whether there are no newcomers, and each member waits or cannot continue."""
        present = self.present(live)
        return self.includes(live) and all(m.waiting_s or not self.is_usable(m) for m in present)

    def holdups(self, live: LiveMembers, stuck_s: float) -> list[tuple[float, Member]]:
        """Members for which a forming round still waits, and until when it does.

        Args:
            live: The live members.
            stuck_s: How long a member may let others wait.
        """
        if self.formed:
            return []
        holdups = [
            (max(self.since_s, member.busy_s) + FORMING_S, member)
            for member in self.present(live)
            if member.at < self.number
        ]
        if not self.includes(live):
            most_s = max(FORMING_S, stuck_s)
            arrived = [m for m in self.present(live) if m.at >= self.number > m.ready_at]
            holdups += [
                (max(self.since_s, member.busy_s) + most_s, member)
                for member in arrived
                if self.is_usable(member) and not member.waiting_s
            ]
        return holdups
