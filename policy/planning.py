"""The words of a plan: what goes in beside the index, and what comes out."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from policy.decisions import Figures, sentence
from policy.names import Tier
from policy.reasons import Reason

Wish = Hashable
"""What a move between jobs depends on; only to be compared."""


@dataclass(frozen=True, slots=True)
class Futile:
    """A wish for which no richer job could give anything."""

    at_s: float
    looks: int
    """Nodes that were looked at for it."""


@dataclass(frozen=True, slots=True)
class History:
    """What a plan remembers of the past. Losing it in a restart only costs some patience."""

    cooling: Mapping[str, float] = field(default_factory=dict)
    """Node -> until when no trainer is added there, because it just gave capacity back."""
    helped: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """uid of a service pod -> how often, and when last, trainers were released for it."""
    futile: Mapping[Wish, Futile] = field(default_factory=dict)
    """As the plan before left them."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a job should have, and why it is not more.

    `live` counts trainers that are there and stay, `target` those wanted now: `live` plus
    creations less releases. `share` is its weighted share at `target`.
    """

    key: str
    live: int
    target: int
    reason: Reason
    figures: Figures
    share: float

    @property
    def detail(self) -> str:
        """The reason in words."""
        return sentence(self.reason, self.figures)


@dataclass(frozen=True, slots=True)
class Create:
    """Make trainers of a job in a tier.

    `nodes` names one for each: where the plan has room for it, or where surplus makes room.
    """

    job: str
    tier: Tier
    nodes: tuple[str, ...]
    reason: Reason
    master: bool = False
    """Whether the first of them is to carry the job's master."""

    @property
    def count(self) -> int:
        """How many."""
        return len(self.nodes)


@dataclass(frozen=True, slots=True)
class Release:
    """Let one trainer go."""

    job: str
    uid: str
    namespace: str
    pod: str
    node: str
    reason: Reason
    figures: Figures

    @property
    def detail(self) -> str:
        """The reason in words."""
        return sentence(self.reason, self.figures)


@dataclass(frozen=True, slots=True)
class Serve:
    """Make parameter servers of a job, each where the plan has room for it."""

    job: str
    numbers: tuple[int, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Retire:
    """Delete the pod of a parameter server."""

    job: str
    uid: str
    namespace: str
    pod: str
    reason: Reason
    """JobStopped, or ServerMoves where it has ended or its node is lost."""
    lost: bool = False
    """Nobody on its node would confirm its end."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything to do now, in order of job key; no creation and no ending means "all is well"."""

    jobs: tuple[JobPlan, ...] = ()
    creates: tuple[Create, ...] = ()
    releases: tuple[Release, ...] = ()
    serves: tuple[Serve, ...] = ()
    retires: tuple[Retire, ...] = ()
    helped: frozenset[str] = frozenset()
    """Service pods that releases of this plan make room for."""
    futile: Mapping[Wish, Futile] = field(default_factory=dict, compare=False)
    """For the next plan's history."""
    postponed: bool = False
    """Whether wishes were left for the next plan, which should come soon."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.creates or self.releases or self.serves or self.retires)
