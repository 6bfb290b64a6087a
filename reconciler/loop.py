"""The control loop: watch, plan, act, report; one thread, numbered steps.

All state comes from the API server. What is kept in memory (expectations, cooling nodes,
back-offs) only saves work or patience, and a restart may lose it.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

from kube.active import ActivePolicy
from kube.cache import ClusterCache
from kube.client import Api
from kube.live import Change, LiveIndex
from policy.decisions import Decision
from policy.elasticity import plan
from policy.model import Policy
from policy.names import Tier
from policy.planning import Plan, Release
from policy.reasons import Reason
from policy.snapshot import Job
from reconciler import diff, reports
from reconciler.actions import LetGo, MakeTrainers, SetParallelism
from reconciler.bookkeeper import WRITE_EVERY_S, Bookkeeper
from reconciler.events import Event, Recorder
from reconciler.expectations import Expectations
from reconciler.fence import Fence
from reconciler.history import Recent
from reconciler.jobs import JobWriter
from reconciler.masters import Masters
from reconciler.meters import Meters
from reconciler.provision import Provision
from reconciler.servers import Servers
from reconciler.settings import ReconcilerSettings
from reconciler.trainers import Outcome, Trainers
from reconciler.witness import Witness
from runtime import clock
from runtime.logs import keys
from runtime.records import Records

log = logging.getLogger(__name__)

_WRITERS = 8
"""Writes under way at one time: more than this only queue up in the API server."""
_FIRST_PAUSE_S = 0.5
_LAST_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class Clocks:
    """Where the loop gets the time from."""

    epoch_s: Callable[[], float] = clock.epoch_s
    monotonic_s: Callable[[], float] = clock.monotonic_s


class Reconciler:
    """Everything of one reconciler but the process around it."""

    def __init__(
        self,
        api: Api,
        settings: ReconcilerSettings,
        *,
        cache: ClusterCache,
        policy: ActivePolicy,
        leads: Callable[[], bool],
        recorder: Recorder,
        records: Records,
        meters: Meters,
        clocks: Clocks | None = None,
        pool: Executor | None = None,
    ) -> None:
        """Starts nothing.

        Args:
            api: Where writes go.
            settings: Of the process.
            cache: What is watched.
            policy: The policy in force.
            leads: Whether this process may act now.
            recorder: Takes events.
            records: Keeps decisions.
            meters: Takes figures.
            clocks: Of the process, unless tests bring their own.
            pool: Where writes run side by side; likewise.
        """
        self._settings = settings
        self._cache = cache
        self._policy = policy
        self._leads = leads
        self._recorder = recorder
        self._records = records
        self._witness = Witness(records)
        self._meters = meters
        self._clocks = clocks or Clocks()
        api = Fence(api, leads)
        self._live = LiveIndex(cache)
        index = self._live.index
        self._pool = pool or ThreadPoolExecutor(_WRITERS, thread_name_prefix="write")
        self._expectations = Expectations()
        self._recent = Recent()
        self._writer = JobWriter(api, index)
        self._masters = Masters(
            api,
            index,
            changed=cache.changes.bump,
            clock_s=self._clocks.epoch_s,
            monotonic_s=self._clocks.monotonic_s,
        )
        self._trainers = Trainers(
            api,
            index,
            expectations=self._expectations,
            writer=self._writer,
            pool=self._pool,
            clock_s=self._clocks.epoch_s,
            provided=self._masters.provided,
        )
        self._servers = Servers(
            api,
            index,
            expectations=self._expectations,
            pool=self._pool,
            clock_s=self._clocks.epoch_s,
            provided=self._masters.provided,
        )
        self._books = Bookkeeper(
            index, self._expectations, self._writer, self._trainers.coming, self._masters.word
        )
        self._provision = Provision(api)
        self._reasons: dict[str, Reason] = {}
        self._refused: dict[str, Decision] = {}
        """Job key -> why the API server did not take its newest guaranteed trainers."""
        self._idle = True
        """Whether all is written and looked into, so that only a change calls for a round."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconcile", daemon=True)

    def start(self) -> None:
        """Begins to work; once only."""
        self._masters.start()
        self._thread.start()

    def stop(self) -> None:
        """Finishes the round that is under way."""
        self._stopping.set()
        self._cache.changes.bump()
        if self._thread.is_alive():
            self._thread.join(timeout=10.0)
        self._masters.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        version, pause_s = -1, _FIRST_PAUSE_S
        while not self._stopping.is_set():
            tick_s = self._settings.tick_seconds if self._idle else WRITE_EVERY_S
            version = self._cache.wait_change(version, tick_s, self._settings.gather_seconds)
            try:
                self.tick()
                pause_s = _FIRST_PAUSE_S
            except Exception:  # a loop that dies in silence would leave every job as it is
                log.exception("round failed", extra=keys(next_try_s=pause_s))
                self._meters.failed.inc()
                self._stopping.wait(pause_s)
                version = -1  # the next try is not to wait for a change
                pause_s = min(_LAST_PAUSE_S, pause_s * 2)

    def tick(self) -> Plan | None:
        """One round; the plan it acted on, None where it must not act."""
        now_s = self._clocks.epoch_s()
        policy = self._policy.current.policy
        index = self._live.index

        # 1. What changed.
        pods, jobs = self._live.drain()
        self._writer.settle(jobs)
        self._expectations.settle(index, pods, now_s)
        self._recent.note(pods, self._expectations, now_s, policy.stability.cool_down_seconds)
        self._books.note(pods)
        self._note_gone(self._trainers.collect(), now_s)
        self._meters.note(pods, now_s)
        self._forget(jobs)
        if not self._may_act():
            self._masters.rest()
            return None

        # 2. What there should be.
        self._books.settle()
        self._provision.ensure(tuple(index.jobs.values()), now_s)
        for event in (*self._masters.look(now_s, self._pool), *self._servers.look(now_s)):
            self._recorder.tell(event, now_s)
        with self._meters.planning.time():
            made = plan(index, policy, now_s, self._recent.history(now_s))
        self._meters.planned(made)
        self._recent.planned(made)

        # 3. Do it, 4. write it down, 5. tell.
        self._act(made, policy, now_s)
        told = reports.as_far_as_done(made, self._refused)
        self._idle = self._books.write(now_s, self._pool, told) and not made.postponed
        self._witness.planned(made, index, policy.node_pools, now_s)
        for event in reports.of_changes(made, self._reasons, index.jobs):
            self._recorder.tell(event, now_s)
        self._reasons = {wanted.key: wanted.reason for wanted in made.jobs}
        return made

    def _may_act(self) -> bool:
        age_s = self._cache.age_s(self._clocks.monotonic_s())
        fresh = self._cache.synced and age_s < self._settings.stale_seconds
        leads = self._leads()
        self._meters.state(leads=leads, age_s=age_s)
        return fresh and leads

    def _forget(self, jobs: dict[str, Change[Job]]) -> None:
        for uid, change in jobs.items():
            if change.new is None and change.last is not None:
                self._books.forget(uid)
                self._trainers.forget(uid)
                self._provision.forget(uid)
                self._masters.forget(uid)
                self._servers.forget(uid)
                self._recorder.forget(change.last)
                self._witness.forget(change.last.key)
                self._refused.pop(change.last.key, None)

    def _act(self, made: Plan, policy: Policy, now_s: float) -> None:
        index = self._live.index
        todo = diff.actions(made, index.jobs)
        releases = [action.release for action in todo if isinstance(action, LetGo)]
        cool_down_s = policy.stability.cool_down_seconds
        self._recent.made_room(releases, made.helped, now_s, cool_down_s)
        self._note_gone(self._trainers.let_go(releases), now_s)
        if not self._leads():
            return
        for event in self._servers.act(made, policy.tiers.grace_seconds):
            self._recorder.tell(event, now_s)
        makes = [action for action in todo if isinstance(action, MakeTrainers)]
        for outcome in self._trainers.make(makes, policy.tiers.grace_seconds):
            self._note(outcome, now_s)
        for action in todo:
            if isinstance(action, SetParallelism):
                self._set_parallelism(action, now_s)

    def _note_gone(self, went: list[Release], now_s: float) -> None:
        for release in went:
            self._records.note(release.job, reports.of_release(release, now_s))
            log.info(
                "trainer released",
                extra=keys(
                    job=release.job, pod=release.pod, reason=release.reason, why=release.detail
                ),
            )
        self._meters.released(went)
        for event in reports.of_releases(went, self._live.index.jobs):
            self._recorder.tell(event, now_s)

    def _note(self, outcome: Outcome, now_s: float) -> None:
        self._meters.made(outcome)
        guaranteed = outcome.tier is Tier.GUARANTEED
        if outcome.error:
            refusal = reports.of_refusal(outcome, now_s)
            self._records.note(outcome.job.key, refusal, strand=refusal.code)
            if guaranteed:
                self._refused[outcome.job.key] = refusal
        elif guaranteed:
            self._refused.pop(outcome.job.key, None)
        log.info(
            "trainers made",
            extra=keys(
                job=outcome.job.key, tier=outcome.tier, made=outcome.made, error=outcome.error
            ),
        )
        event = reports.of_outcome(outcome)
        if event is not None:
            self._recorder.tell(event, now_s)

    def _set_parallelism(self, action: SetParallelism, now_s: float) -> None:
        job = self._live.index.jobs[action.job]
        if self._writer.write_parallelism(job, action.count):
            text = (
                f"the built-in controller runs this Job, because it was created while EDL's "
                f"webhook was away: parallelism moved from {job.parallelism} to {action.count}; "
                "it grows and shrinks more slowly than other elastic jobs: create it again"
            )
            self._recorder.tell(Event(job, "ParallelismMoved", text, warning=True), now_s)
