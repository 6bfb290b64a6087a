"""A round of the rendezvous: its members, whether they train, and when the next one is due. Pure."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from master.membership import Member, MemberId, Slot
from runtime.call_checks import Json

FORMING_S = 60.0
"""Members that have not reached a round after this time are dropped, because they hold up all
others. A member that has reached the round may take as long as for a step."""

_REMEMBERED = 8
"""Number of earlier rounds from which an answer can give the changes."""

LiveMembers = Mapping[str, Member]
"""All live members of a job by trainer, in the round or not."""

_Differs = Callable[[Member | None, int], bool]
"""(live member of a slot's trainer or None, rank of the slot) -> whether the member is not in the
expected state."""
WINDOW_S = 0.2
"""A round is proclaimed this long after the last change."""
MAX_WINDOW_S = 1.0
"""A round is proclaimed at most this long after the first change."""
VOID_WINDOW_S = 0.1
"""The shorter window if the round cannot continue and there are no newcomers."""
SHORT_WINDOW_S = 0.05
"""The shortest window, used if all remaining members wait for the next round (after a member was
lost or has left) and there are no newcomers."""


@dataclass(slots=True)
class Round:
    """A fixed list of members that train together."""

    number: int
    slots: tuple[Slot, ...]
    """The members' entries by rank."""
    since_s: float
    formed: bool = False
    """Whether all members have been ready in this round."""
    deadlocked: bool = False
    """Whether all members wait for each other."""
    members: list[Json] = field(init=False)
    """The members for answers, by rank."""
    _ranks: dict[MemberId, int] = field(init=False)
    _ready_ranks: int = field(default=0, init=False)
    """All lower ranks were ready at the last check, so the next check begins here."""
    _idle_ranks: int = field(default=0, init=False)
    """All lower ranks were idle at the last check."""

    def __post_init__(self) -> None:
        self._ranks = {slot.member_id: rank for rank, slot in enumerate(self.slots)}
        self.members = [
            {name: text for name, text in slot._asdict().items() if text} for slot in self.slots
        ]

    def changes_since(self, earlier: "Round") -> Json | None:
        """Returns the differences between the members of an earlier round and of this one.

        Returns:
            The number of the earlier round as `since`, the ranks of it that are `gone`, and the new
            `members` at the end; None if a remaining member has another place or entry.
        """
        slots = set(self.slots)
        gone_ranks = [rank for rank, slot in enumerate(earlier.slots) if slot not in slots]
        remaining = tuple(slot for slot in earlier.slots if slot in slots)
        if self.slots[: len(remaining)] != remaining:
            return None
        return {
            "since": earlier.number,
            "gone": gone_ranks,
            "members": self.members[len(remaining) :],
        }

    def report(self) -> Json:
        """Returns the round for the status."""
        members = [{"trainer": slot.trainer, "rank": i} for i, slot in enumerate(self.slots)]
        return {"round": self.number, "formed": self.formed, "members": members}

    def has(self, member_id: MemberId) -> bool:
        """Returns whether a process is in the round."""
        return member_id in self._ranks

    def rank_of(self, member_id: MemberId) -> int | None:
        """Returns the rank of a process; None if it is not in the round."""
        return self._ranks.get(member_id)

    def consists_of(self, live: LiveMembers) -> bool:
        """Returns whether exactly the live members are in the round."""
        return len(live) == len(self.slots) and self.includes(live)

    def includes(self, live: LiveMembers) -> bool:
        """Returns whether all live members are in the round, so that there are no newcomers."""
        return all(self.has(member.slot.member_id) for member in live.values())

    def present(self, live: LiveMembers) -> list[Member]:
        """Returns the live members of the round, by rank."""
        members = (live.get(slot.trainer) for slot in self.slots)
        return [
            member for member in members if member is not None and self.has(member.slot.member_id)
        ]

    def is_usable(self, member: Member) -> bool:
        """Returns whether a member can continue in the round."""
        return member.broken_at < self.number or not self.has(member.slot.member_id)

    def is_ready(self, live: LiveMembers) -> bool:
        """Returns whether all its members are ready to train."""
        self._ready_ranks = self._first(self._ready_ranks, live, self._is_not_ready)
        return 0 < len(self.slots) == self._ready_ranks

    def _first(self, rank: int, live: LiveMembers, differs: _Differs) -> int:
        """Returns the first rank whose member is not in the expected state; the number of ranks if all are.

        The search begins at `rank`. If it finds nothing from there on, it begins again at 0.
        """
        count = len(self.slots)
        for begin in (rank, 0):
            ranks = range(begin, count)
            rank = next((i for i in ranks if differs(live.get(self.slots[i].trainer), i)), count)
            if rank < count:
                break
        return rank

    def _is_not_ready(self, member: Member | None, rank: int) -> bool:
        if member is None or member.slot.member_id != self.slots[rank].member_id:
            return True
        return member.ready_at < self.number or not self.is_usable(member)

    def _is_active(self, member: Member | None, rank: int) -> bool:
        if member is None or member.slot.member_id != self.slots[rank].member_id:
            return False
        return not member.waiting_s and self.is_usable(member)

    def is_impossible(self, live: LiveMembers, leavers: Container[MemberId]) -> bool:
        """Returns whether the round cannot continue.

        Args:
            live: The live members.
            leavers: Processes that have left by themselves.
        """
        present = self.present(live)
        if self.deadlocked or not all(map(self.is_usable, present)):
            return True
        present_ids = {member.slot.member_id for member in present}
        missing_ids = (slot.member_id for slot in self.slots if slot.member_id not in present_ids)
        if self.formed:  # members that have left train on until the next round
            return any(member_id not in leavers for member_id in missing_ids)
        return any(True for _ in missing_ids)

    def is_idle(self, live: LiveMembers) -> bool:
        """Returns whether every member waits or cannot continue."""
        self._idle_ranks = self._first(self._idle_ranks, live, self._is_active)
        return self._idle_ranks == len(self.slots)

    def holdups(self, live: LiveMembers, stuck_s: float) -> list[tuple[float, Member]]:
        """Returns (deadline, member) for each member that a forming round waits for.

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
            max_s = max(FORMING_S, stuck_s)
            arrived = [m for m in self.present(live) if m.at >= self.number > m.ready_at]
            holdups += [
                (max(self.since_s, member.busy_s) + max_s, member)
                for member in arrived
                if self.is_usable(member) and not member.waiting_s
            ]
        return holdups


class RoundHistory:
    """The last rounds, so that callers that know one of them get only the changes since."""

    def __init__(self) -> None:
        self._earlier: dict[int, Round] = {}
        self._changes: dict[int, Json] = {}
        """Number of an earlier round -> members of the newest round, for callers that know that
        earlier round."""

    def add(self, earlier: Round) -> None:
        """Stores a round that a newer round replaces."""
        self._changes.clear()
        self._earlier[earlier.number] = earlier
        if len(self._earlier) > _REMEMBERED:
            del self._earlier[next(iter(self._earlier))]

    def members(self, newest: Round, known_number: int | None) -> Json:
        """Returns the members of the newest round for an answer, in full or as changes.

        Args:
            newest: The newest round.
            known_number: The round whose members the caller knows; None if it knows none.
        """
        if known_number == newest.number:
            return {}
        earlier = None if known_number is None else self._earlier.get(known_number)
        if known_number is None or earlier is None:
            return {"members": newest.members}
        if known_number not in self._changes:
            self._changes[known_number] = newest.changes_since(earlier) or {
                "members": newest.members
            }
        return self._changes[known_number]


class ChangeWindow:
    """The window that gathers changes of members into one later round. Time is passed in."""

    def __init__(self) -> None:
        self._first_s = self._last_s = float("inf")

    @property
    def is_open(self) -> bool:
        """Whether a change waits for a round."""
        return self._first_s < float("inf")

    def note(self, now_s: float) -> None:
        """Records a change."""
        self._first_s = now_s if not self.is_open else self._first_s
        self._last_s = now_s

    def close(self) -> None:
        """Forgets the changes: the newest round contains them, or they were undone."""
        self._first_s = self._last_s = float("inf")

    def end_s(self, window_s: float = WINDOW_S) -> float:
        """Returns when the round with all changes is due; inf if there are none.

        Args:
            window_s: The time after the last change.
        """
        return min(self._last_s + window_s, self._first_s + MAX_WINDOW_S)
