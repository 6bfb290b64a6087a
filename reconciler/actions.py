"""What the reconciler does to a cluster, as values: `diff` decides them, `apply` carries them out."""

from dataclasses import dataclass

from policy.names import Tier
from policy.planning import Release
from policy.reasons import Reason


@dataclass(frozen=True, slots=True)
class MakeTrainers:
    """Create trainer pods of a job whose pods we own, one for each node they are planned on."""

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
class LetGo:
    """Evict one trainer."""

    release: Release


@dataclass(frozen=True, slots=True)
class SetParallelism:
    """Tell the built-in controller how many pods a job should have."""

    job: str
    count: int
    detail: str


Action = MakeTrainers | LetGo | SetParallelism
