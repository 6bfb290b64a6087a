"""The draft of one job's plan, which the rules in `policy.planning.rules` change until the plan is made. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import takewhile

from policy.admission import sidecar
from policy.cluster import amounts
from policy.cluster.live_trainers import LiveTrainers
from policy.cluster.snapshot import Job, Pod, Resources
from policy.decisions import NONE, Figures
from policy.names import Tier
from policy.planning.demand import DemandHistory
from policy.planning.free_capacity import NOWHERE
from policy.planning.plan import Create
from policy.reasons import Reason


class JobDraft:
    """The mutable draft of one job's plan: remaining trainers, planned creations, and the reason."""

    node_request: Create | None = None  # trainers to create though no node has room for them
    paused: bool = False  # whether it would get more trainers now, were it its turn
    awaits_nodes: bool = False  # whether pods of it wait, or will, for an autoscaler to add nodes
    has_turn: bool = False  # whether it may request nodes now
    priority: int = 0  # of its queue; a higher one comes first
    closed: frozenset[str] = NOWHERE  # nodes held for an older job: it must not start there
    claimed = 0  # trainers that count against its queue's nominal quota, before this plan
    gains: int = 0  # trainers that this plan gives it at the expense of other jobs

    def __init__(
        self,
        job: Job,
        live_trainers: LiveTrainers,
        *,
        demand_history: DemandHistory,
        trainer_measure: float,
        stranded: int,
        masterless: bool = False,
        server_count: int = 0,
        servers_measure: float = 0.0,
    ) -> None:
        """Starts from the job as it is in the cluster, with nothing planned.

        Args:
            job: The job.
            live_trainers: Its trainers.
            demand_history: How often it has changed what it asks for.
            trainer_measure: Fairness measure of one trainer; see `CycleState.measure`.
            stranded: Guaranteed trainers on nodes that are drained or lost, to be replaced.
            masterless: Whether it asked for a master and no pod hosts one.
            server_count: Parameter servers that count as the job's: all, or 0 before it starts.
            servers_measure: Fairness measure of all parameter servers that the job asks for.
        """
        self.job = job
        self.key = job.key
        self.covered_min = job.min_trainers
        """Its minimum as far as its queue's nominal quota covers it; all of it before it starts."""
        self.demand_history = demand_history
        self.live = list(live_trainers.pods)
        """Trainers that remain, in order of loss: surplus before guaranteed."""
        self._positions: dict[str, int] = {}  # uid -> where in `live` it was at first
        self._removed: list[int] = []  # those of them that were removed, ascending
        self.trainer_measure = trainer_measure
        self.server_count = server_count
        self._servers_measure = servers_measure
        self._surplus = live_trainers.surplus
        self._waiting = live_trainers.waiting > 0
        self.guaranteed = len(live_trainers.guaranteed)  # live trainers of the guaranteed tier
        self.absent = 0 if job.managed else max(0, job.parallelism - len(live_trainers.pods))
        """Trainers that the built-in controller should create and has not created yet."""
        self.initial_count = len(live_trainers.pods) + self.absent  # trainers before this plan
        self.count = self.initial_count  # trainers after this plan
        self.excess = live_trainers.excess  # as there
        self.stranded = stranded
        self.masterless = masterless  # its master is missing; the next guaranteed trainer hosts it
        self.leaving = live_trainers.leaving
        self.ending = live_trainers.succeeded
        """A trainer succeeded, and there is no master to decide instead: no more creations."""
        self.creates: dict[Tier, list[str]] = {Tier.GUARANTEED: [], Tier.SURPLUS: []}
        """Tier -> nodes of the trainers to create."""
        self.server_creates: dict[int, str] = {}
        """Index -> node of a parameter server to create; "" for one that waits for a node."""
        self.expected_count = 0
        """Trainers for which capacity is reserved that leaving pods will free."""
        self.reason = Reason.AT_MAX
        self.figures: Figures = {"max": job.max_trainers}
        self.stopped = job.stopped  # whether it should have no trainers at all
        self.grows = not (self.stopped or self.ending or job.error)
        """Whether trainers may be created for it."""

    @property
    def servers_measure(self) -> float:
        """Fairness measure of its parameter servers."""
        return self._servers_measure if self.server_count else 0.0

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
        if not self._waiting:
            return []
        return list(takewhile(lambda pod: not pod.node, self.surplus))

    def add_creates(self, tier: Tier, nodes: Sequence[str]) -> None:
        """Plans the creation of trainers, one on each node."""
        self.creates[tier] += nodes
        self.count += len(nodes)

    def cancel_absent(self, absent: int) -> None:
        """Takes back trainers that the built-in controller has not created yet."""
        self.absent -= absent
        self.count -= absent

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
        """Where a trainer is in `live`, from which it is about to be removed."""
        self._positions = self._positions or {p.uid: n for n, p in enumerate(self.live)}
        at_first = self._positions[pod.uid]
        removed_before = bisect_left(self._removed, at_first)
        self._removed.insert(removed_before, at_first)
        return at_first - removed_before

    def requests(self, *, first: bool) -> Resources:
        """Requests of a new trainer; the first guaranteed one also hosts a missing master."""
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

    def set_reason(self, reason: Reason, figures: Figures = NONE) -> None:
        """Records why the job has its target; a later call overrides an earlier one."""
        self.reason, self.figures = reason, figures
