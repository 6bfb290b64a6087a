"""One job in the book of a plan: its constant facts, and the plan's decisions so far. Pure."""

from bisect import bisect_left
from dataclasses import dataclass
from itertools import takewhile

from policy.admission import sidecar
from policy.cluster import amounts
from policy.cluster.live_trainers import LiveTrainers
from policy.cluster.snapshot import Job, Pod, Resources
from policy.names import Tier
from policy.planning import plan
from policy.planning.decisions import Blocked
from policy.planning.demand import DemandHistory
from policy.reasons import Reason


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job as it is in the cluster before a plan."""

    job: Job
    live: LiveTrainers
    demand_history: DemandHistory
    """How often it has changed its demand."""
    trainer_measure: float
    """Fairness measure of one trainer; see `Book.measure`."""
    servers_measure: float = 0.0
    """Fairness measure of all parameter servers that the job requests."""
    server_count: int = 0
    """Number of parameter servers that count as the job's: all of them, or 0 before it starts."""
    stranded: int = 0
    """Number of guaranteed trainers to replace, because their nodes are drained or lost."""
    masterless: bool = False
    """Whether it requests a master and no pod hosts one."""
    priority: int = 0
    """Priority of its queue; higher priorities come first."""
    covered_min: int = 0
    """The part of its minimum that its queue's nominal quota covers; the whole minimum before it starts."""
    claimed: int = 0
    """Number of its trainers that count against its queue's nominal quota."""

    @property
    def absent(self) -> int:
        """Number of trainers that the built-in controller should create and has not created yet."""
        return 0 if self.job.managed else max(0, self.job.parallelism - len(self.live.pods))

    @property
    def count(self) -> int:
        """Number of trainers before this plan."""
        return len(self.live.pods) + self.absent

    @property
    def excess(self) -> frozenset[str]:
        """Uids of surplus trainers whose label says that they are guaranteed."""
        return self.live.excess

    @property
    def leaving(self) -> int:
        """Number of trainers that are being deleted and have not ended."""
        return self.live.leaving

    @property
    def ending(self) -> bool:
        """Whether a trainer has succeeded in a job without EDL's master, so that no more are created."""
        return self.live.succeeded


class JobEntry:
    """A job in the book: its remaining trainers, planned creations, and the reason for its target.

    Rules read it; only the book changes it.
    """

    def __init__(self, facts: JobFacts) -> None:
        """Starts from the job as it is in the cluster, with nothing planned."""
        self.facts = facts
        self.job = facts.job
        self.key = facts.job.key
        self.stopped = facts.job.stopped
        """Whether it should have no trainers at all."""
        self.grows = not (self.stopped or facts.ending or facts.job.error)
        """Whether trainers may be created for it."""
        self.covered_min = facts.covered_min
        """`JobFacts.covered_min` minus what new servers and the queue's other jobs have used since."""
        self.live = list(facts.live.pods)
        """Trainers that remain, in order of loss: surplus before guaranteed."""
        self._positions: dict[str, int] = {}  # uid -> initial position in `live`
        self._removed: list[int] = []  # initial positions of removed trainers, ascending
        self._surplus = facts.live.surplus
        self.guaranteed = len(facts.live.guaranteed)  # number of live guaranteed trainers
        self.absent = facts.absent
        self.count = facts.count  # number of trainers after this plan
        self.expected_count = 0
        """Number of future trainers; leaving pods will free the capacity that is reserved for them."""
        self.creates: dict[Tier, list[str]] = {Tier.GUARANTEED: [], Tier.SURPLUS: []}
        """Tier -> nodes of the trainers to create."""
        self.node_request: plan.Create | None = None
        """Trainers to create although no node has capacity for them."""
        self.server_count = facts.server_count
        self.server_creates: dict[int, str] = {}
        """Index of a parameter server to create -> its node; "" if it waits for a node."""
        self.masterless = facts.masterless
        """Whether its master is missing; the next guaranteed trainer hosts it."""
        self.gains = 0
        """Number of trainers that this plan gives it at the expense of other jobs."""
        self.paused = False
        """Whether it would get more trainers, but must wait until the newest trainers have a node."""
        self.awaits_nodes = False
        """Whether some of its pods wait, or will wait, for an autoscaler to add nodes."""
        self.blocked = Blocked(Reason.AT_MAX, {"max": facts.job.max_trainers})
        """Why it has its target."""

    @property
    def reason(self) -> Reason:
        """Why it has its target."""
        return self.blocked.reason

    @property
    def servers_measure(self) -> float:
        """Fairness measure of its parameter servers."""
        return self.facts.servers_measure if self.server_count else 0.0

    @property
    def servers_to_start(self) -> int:
        """Number of parameter servers that must be created with its first trainers."""
        server_spec = self.job.servers if self.job.managed else None
        return server_spec.count if server_spec is not None and not self.server_count else 0

    @property
    def surplus(self) -> list[Pod]:
        """Live trainers of the surplus tier, in order of loss."""
        return self.live[: self._surplus]

    @property
    def waiting(self) -> list[Pod]:
        """Surplus trainers that have no node yet."""
        if not self.facts.live.waiting:
            return []
        return list(takewhile(lambda pod: not pod.node, self.surplus))

    def remove(self, pod: Pod) -> None:
        """Removes a live trainer from the count."""
        self.count -= 1
        position = self._position_of(pod)
        del self.live[position]
        if position < self._surplus:
            self._surplus -= 1
        else:
            self.guaranteed -= pod.tier is Tier.GUARANTEED

    def _position_of(self, pod: Pod) -> int:
        """Returns the current position in `live` of a trainer that is about to be removed."""
        self._positions = self._positions or {p.uid: n for n, p in enumerate(self.live)}
        at_first = self._positions[pod.uid]
        removed_before = bisect_left(self._removed, at_first)
        self._removed.insert(removed_before, at_first)
        return at_first - removed_before

    def requests(self, *, first: bool) -> Resources:
        """Returns the requests of a new trainer; the first guaranteed trainer also hosts a missing master."""
        if not (first and self.masterless):
            return self.job.requests
        with_master = dict(self.job.requests)
        amounts.add(with_master, sidecar.requests_of(self.job))
        return with_master

    @property
    def spare(self) -> list[Pod]:
        """Surplus trainers, in order of loss, whose release leaves the job its covered minimum.

        If guaranteed trainers are missing, surplus trainers count towards the covered minimum.
        """
        return self.surplus[: max(0, self.count - self.covered_min)]

    @property
    def uncovered(self) -> int:
        """The part of its minimum that its queue's nominal quota does not cover, in trainers."""
        return self.job.min_trainers - self.covered_min

    @property
    def admitted(self) -> bool:
        """Whether it has started, so that it may have more than its minimum."""
        return self.grows and self.count >= self.covered_min and not self.awaits_nodes
