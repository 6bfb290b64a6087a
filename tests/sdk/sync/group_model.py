"""A group of trainers as a model in one thread: real ledger, lease tables, queues and agreement.

What threads, sockets and processes decide is the caller's choice: when the leader's calls for work
are sent, answered, entered and queued, which members receive a plan message, which of them make a
step, who is lost, and who comes back with which rank.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import count

from edl.data.batches import describe
from edl.master import protocol
from edl.sync import plan_message
from edl.sync.agreement import Needs, agree, is_one_step_behind
from edl.sync.group_progress import GroupProgress
from edl.sync.group_session import GROUP
from edl.sync.lease_queue import LeaseQueue
from edl.sync.plans import Plan

from master.commands import from_json
from master.ledger import Ledger
from runtime.call_checks import RefusedError
from tests.sdk.sync.replicas import data

Step = tuple[tuple[int, int], ...]
"""The records of a step: epoch and index of each."""
RECORDS, BATCH, EPOCHS = 1024, 64, 3
_AHEAD = BATCH * 8
_SCOPE: protocol.Json = {"kinds": ["training"], "datasets": ["points"]}


class LostStateError(Exception):
    """All members with the newest model are lost: the job continues from a checkpoint."""


@dataclass(eq=False)
class Member:
    """One trainer; its model is the list of steps that it was trained with."""

    name: str
    progress: GroupProgress = field(default_factory=GroupProgress)
    leader: "ModelLeader | None" = None
    plans: list[Plan] = field(default_factory=list)
    model: list[Step] = field(default_factory=list)
    before: int = 0
    """Lineage before the newest step, as long as it has the gradient of that step."""


class ModelLeader:
    """What `Leader`, `GroupSession` and `WorkFetcher` do, a part at a time."""

    def __init__(
        self, ledger: Ledger, incarnation: str, progress: GroupProgress, task_records: int
    ) -> None:
        """Joins in the group's name.

        Raises:
            LostStateError: The model lacks acknowledged records.
        """
        self.incarnation, self._ledger = incarnation, ledger
        self._table = progress.lease_table
        self._calls = self._plans = 0
        self._request: protocol.Json | None = None
        self._answer: protocol.Json | None = None
        self._entered: tuple[protocol.Lease, ...] | None = None
        """Leases that are in the lease table, and not in the queue yet."""
        self._over = False
        progress.start_leading()
        self._table.drop_unstarted()
        done, held = self._table.handover()
        lead = {"dataset": "points", "term": progress.term, "begins": True}
        try:
            answer = self._execute("join", done=done, held=held, lead=lead)
        except RefusedError as error:
            raise LostStateError from error
        self._table.complete_handover(answer["lost"])
        self.term = int(answer["term"])
        self._queue = LeaseQueue(self._table, _AHEAD, task_records)

    def begin_term(self, after: int) -> bool:
        """Begins a later round's term; False if another member has led since."""
        try:
            self.term = int(self._execute("term", dataset="points", term=after)["term"])
        except RefusedError as error:
            if error.field == "term":
                raise LostStateError from error
            return False
        self._queue.rewind()
        return True

    def advance_call(self) -> None:
        """Does the next part of a call for work: to send, receive, enter or queue."""
        if self._entered is not None:
            self._queue_entered(self._entered)
        elif self._answer is not None:
            self._enter(self._answer)
        elif self._request is not None:
            try:
                self._answer = self._execute("work", **_SCOPE, **self._request)
            except RefusedError:
                self._answer = None  # another member leads by now; the call is never answered
        else:
            self._prepare()

    def plan(self) -> Plan | None:
        """The next step; empty if records are missing, None after the last."""
        spans = self._queue.next_step(BATCH, 0.0)
        if spans is None:
            return None
        self._plans += 1
        name = f"{self.incarnation}-{self._plans}"
        return Plan(name, tuple(span for span in spans if span.count))

    def _prepare(self) -> None:
        report = self._table.report()
        with self._queue.lock:
            want = self._queue.leases_wanted()
        if report or want:
            self._calls += 1
            self._request = {"call": self._calls, "want": want, **report.lists()}

    def _enter(self, answer: protocol.Json) -> None:
        request, self._answer = self._request, None
        assert request is not None
        report = protocol.Report(request["done"], request["failed"])
        self._table.apply_results(report, answer["results"], request["call"])
        self._table.mark_durable(request["call"])
        tasks = [{"lease_s": 5.0, **task} for task in answer["tasks"]]
        response = protocol.parse_work({**answer, "tasks": tasks, "generation": 1})
        self._over = answer["state"] == "done"
        self._entered = tuple(lease for lease in response.leases if self._table.add(lease))

    def _queue_entered(self, leases: tuple[protocol.Lease, ...]) -> None:
        request, self._request, self._entered = self._request, None, None
        assert request is not None
        if leases:
            self._queue.add_leases(leases)
        elif request["want"] or self._over:
            self._queue.mark_exhausted(done=self._over)

    def _execute(self, name: str, **fields: object) -> protocol.Json:
        identity = {"trainer": GROUP, "incarnation": self.incarnation}
        answer: protocol.Json = self._ledger.execute(from_json({"do": name, **identity, **fields}))
        return answer


class Group:
    """A job's ledger and the members of its newest round, in the order of their ranks."""

    def __init__(self, task_records: int) -> None:
        """Starts without members."""
        self._ledger, self._numbers = Ledger("digits"), count()
        self._task_records = task_records
        shape = describe(
            data(RECORDS),
            BATCH,
            epochs=EPOCHS,
            shuffle_seed=1,
            task_records=task_records,
            overlap=True,
        )
        self._ledger.execute(from_json({"do": "describe", "name": "points", "shape": shape}))
        self.members: list[Member] = []
        self._round = 0
        self.over = False

    def newcomer(self) -> Member:
        """A trainer without a state, which is in no round yet."""
        return Member(f"trainer-{next(self._numbers)}")

    @property
    def leader(self) -> ModelLeader:
        """That of the newest round."""
        leader = self.members[0].leader
        assert leader is not None
        return leader

    def begin_round(self, members: Sequence[Member]) -> None:
        """Begins a round, as `RoundStart` does; the first member leads."""
        self.members = list(members)
        self._round += 1
        for member in members:
            member.plans = []
        if len(members) > 1 or not members[0].progress.term:
            self._agree()
        for member in members:
            member.progress.flight = None
            member.progress.commit()
        term = self._begin_term(members[0])
        for member in members:
            member.progress.term = term
            member.leader = member.leader if member is members[0] else None

    def send_plans(self, steps: int, receivers: Collection[Member]) -> None:
        """The leader plans; it and the receivers enter the message."""
        plans: list[Plan] = []
        while len(plans) < steps and (plan := self.leader.plan()) is not None and plan.spans:
            plans.append(plan)
        over = not plans and plan is None
        settled = self.members[0].progress.newly_settled()
        message = plan_message.decode(plan_message.encode(plans, settled, over=over))
        for member in (self.members[0], *receivers):
            if member.leader is None:
                member.progress.settle(message.settled)
                for span in (span for plan in message.plans for span in plan.spans):
                    member.progress.lease_table.add(span.lease)
            member.plans += message.plans
            if not member.plans:
                member.progress.commit()
        self.over = message.over and len(receivers) == len(self.members) - 1

    def step(self, makers: Collection[Member]) -> tuple[int, Step]:
        """All begin the next step, some make it; returns its number and records."""
        begun: tuple[int, Step] = (0, ())
        for member in self.members:
            plan = member.progress.flight = member.plans.pop(0)
            indices = [(s.lease.epoch, range(s.start, s.start + s.count)) for s in plan.spans]
            records = tuple((epoch, at) for epoch, span in indices for at in span)
            begun = member.progress.step, records
            member.before = 0
            if member in makers:
                member.model = [*member.model, records]
                member.before = member.progress.lineage
                member.progress.advance({}, round_number=self._round)
        return begun

    def _agree(self) -> None:
        reports = [
            member.progress.state_report(member.name, member.before) for member in self.members
        ]
        agreement = agree(reports)
        source, chosen = self.members[agreement.source], reports[agreement.source]
        if agreement.initial:
            source.progress.start_lineage()
        about = source.progress.dump()
        for rank in agreement.receivers:
            member = self.members[rank]
            if agreement.needs is Needs.STATE:
                member.model = list(source.model)
            elif agreement.needs is Needs.GRADIENT:
                member.model = [*member.model, source.model[-1]]
            if member.leader is not None and is_one_step_behind(reports[rank], chosen):
                member.progress.advance(about["metrics"])
                member.progress.load_position(about)
            else:
                member.leader = None
                member.progress.load(about)
            member.progress.term = chosen.term
        assert all(member.model == source.model for member in self.members)

    def _begin_term(self, member: Member) -> int:
        if member.leader is None or not member.leader.begin_term(member.progress.term):
            incarnation = f"leader-{next(self._numbers)}"
            member.leader = ModelLeader(
                self._ledger, incarnation, member.progress, self._task_records
            )
        return member.leader.term
