"""One job in the book of a plan: the facts, which stay, and what the plan has decided so far. Pure."""

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
    """How often it has changed what it asks for."""
    trainer_measure: float
    """Fairness measure of one trainer; see `Book.measure`."""
    servers_measure: float = 0.0
    """Fairness measure of all parameter servers that the job asks for."""
    server_count: int = 0
    """Parameter servers that count as the job's: all, or 0 before it starts."""
    stranded: int = 0
    """Guaranteed trainers on nodes that are drained or lost, to be replaced."""
    masterless: bool = False
    """Whether it asked for a master and no pod hosts one."""
    priority: int = 0
    """Priority of its queue; a higher one comes first."""
    covered_min: int = 0
    """Its minimum as far as its queue's nominal quota covers it; all of it before it starts."""
    claimed: int = 0
    """Trainers that count against its queue's nominal quota."""

    @property
    def absent(self) -> int:
        """Trainers that the built-in controller should create and has not created yet."""
        return 0 if self.job.managed else max(0, self.job.parallelism - len(self.live.pods))

    @property
    def count(self) -> int:
        """Trainers before this plan."""
        return len(self.live.pods) + self.absent

    @property
    def excess(self) -> frozenset[str]:
        """Uids of surplus trainers whose label says that they are guaranteed."""
        return self.live.excess

    @property
    def leaving(self) -> int:
        """Trainers that are being deleted and have not ended."""
        return self.live.leaving

    @property
    def ending(self) -> bool:
        """Whether a trainer succeeded, and no master decides instead: no more creations."""
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
        """`JobFacts.covered_min` less the quota that new servers and other jobs of the queue have taken since."""
        self.live = list(facts.live.pods)
        """Trainers that remain, in order of loss: surplus before guaranteed."""
        self._positions: dict[str, int] = {}  # uid -> where in `live` it was at first
        self._removed: list[int] = []  # those of them that were removed, ascending
        self._surplus = facts.live.surplus
        self.guaranteed = len(facts.live.guaranteed)  # live trainers of the guaranteed tier
        self.absent = facts.absent
        self.count = facts.count  # trainers after this plan
        self.expected_count = 0
        """Trainers for which capacity is reserved that leaving pods will free."""
        self.creates: dict[Tier, list[str]] = {Tier.GUARANTEED: [], Tier.SURPLUS: []}
        """Tier -> nodes of the trainers to create."""
        self.node_request: plan.Create | None = None
        """Trainers to create though no node has capacity for them."""
        self.server_count = facts.server_count
        self.server_creates: dict[int, str] = {}
        """Index -> node of a parameter server to create; "" for one that waits for a node."""
        self.masterless = facts.masterless
        """Whether its master is missing; the next guaranteed trainer hosts it."""
        self.gains = 0
        """Trainers that this plan gives it at the expense of other jobs."""
        self.paused = False
        """Whether it would get more trainers now, were it its turn."""
        self.awaits_nodes = False
        """Whether pods of it wait, or will, for an autoscaler to add nodes."""
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
        """Returns where a trainer is in `live`, from which it is about to be removed."""
        self._positions = self._positions or {p.uid: n for n, p in enumerate(self.live)}
        at_first = self._positions[pod.uid]
        removed_before = bisect_left(self._removed, at_first)
        self._removed.insert(removed_before, at_first)
        return at_first - removed_before

    def requests(self, *, first: bool) -> Resources:
        """Returns the requests of a new trainer; the first guaranteed one also hosts a missing master."""
        if not (first and self.masterless):
            return self.job.requests
        with_master = dict(self.job.requests)
        amounts.add(with_master, sidecar.requests_of(self.job))
        return with_master

    @property
    def spare(self) -> list[Pod]:
        """Surplus trainers that may be released without taking the job below its minimum.

        In order of loss. Where guaranteed trainers are missing, surplus ones count towards the
        minimum, as far as that is covered.
        """
        return self.surplus[: max(0, self.count - self.covered_min)]

    @property
    def uncovered(self) -> int:
        """How much of its minimum its queue's nominal quota does not cover."""
        return self.job.min_trainers - self.covered_min

    @property
    def admitted(self) -> bool:
        """Whether it has started, so that it may have more than its minimum."""
        return self.grows and self.count >= self.covered_min and not self.awaits_nodes
