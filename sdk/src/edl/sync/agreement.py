"""Who has the newest state at a round's start, and who needs it. Pure.

Members of a round may differ: newcomers have nothing, one that was dropped and came back has
something old, and where a member died in the middle of an exchange some survivors have made the
step and others have not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from edl import wire


@dataclass(frozen=True)
class Hello:
    """What a member says of itself first in each round."""

    trainer: str
    term: int = 0
    """The newest in which it was alike with all others; 0: none, it has only just begun."""
    step: int = 0
    """Steps made."""
    digest: int = 0
    """Of its state."""
    made: str = ""
    """Plan of its newest step."""
    flight: str = ""
    """Plan of the step that it had begun and could not end."""

    def json(self) -> wire.Json:
        """As it is sent."""
        return asdict(self)


@dataclass(frozen=True)
class Agreement:
    """What follows from everybody's hello."""

    source: int
    """The rank whose state counts."""
    needy: frozenset[int]
    """Ranks that must take it over."""
    fresh: bool
    """Whether nobody has a state yet: the source makes the first one."""


def agree(hellos: Sequence[Hello]) -> Agreement:
    """Decides the same at every member.

    The state of the newest term counts, and in it the one of the most steps; among equals the
    oldest member's. Those with the same digest have it already.
    """
    best = max(range(len(hellos)), key=lambda rank: (_age(hellos[rank]), -rank))
    chosen = hellos[best]
    if chosen.term == 0:
        return Agreement(0, frozenset(range(1, len(hellos))), fresh=True)
    needy = frozenset(rank for rank, hello in enumerate(hellos) if _place(hello) != _place(chosen))
    return Agreement(best, needy, fresh=False)


def one_behind(mine: Hello, chosen: Hello) -> bool:
    """Whether a member has all of the chosen state but the step that was in flight."""
    return bool(mine.flight) and mine.flight == chosen.made and mine.step + 1 == chosen.step


def _age(hello: Hello) -> tuple[int, int]:
    return hello.term, hello.step


def _place(hello: Hello) -> tuple[bool, int, int]:
    return hello.term > 0, hello.step, hello.digest
