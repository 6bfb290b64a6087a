"""The control loop: watches, plans, acts and reports, on one thread.

All state comes from the API server. The state that is only kept in memory (expectations, cool-downs of
nodes, back-offs) saves writes or waiting time, so a restart may lose it.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from math import inf

from kube.active import ActivePolicy
from kube.api import Api
from kube.cache import ClusterCache
from kube.object_change import ObjectChange
from kube.state_feed import ClusterStateFeed
from policy.cluster.snapshot import Job, Pod
from policy.cluster.usage_report import usage_line
from policy.document.model import Policy
from policy.names import Role
from policy.planning.plan import JobPlan, Plan, Release
from policy.planning.planner import plan
from policy.planning.recent_history import RecentHistory
from policy.reasons import Reason
from reconciler.components import Clocks, Components, connect
from reconciler.jobs import unmanaged_jobs
from reconciler.jobs.role_counts import RoleCounts
from reconciler.jobs.tracker import WRITE_EVERY_S
from reconciler.leader_only import LeaderOnlyApi
from reconciler.metrics import ReconcilerMetrics
from reconciler.plan_isolation import plan_without_culprits
from reconciler.records import plan_reports
from reconciler.records.decision_recorder import DecisionRecorder
from reconciler.records.events import Event, EventRecorder
from reconciler.records.inbox import RecordInbox
from reconciler.records.observer import Observer
from reconciler.records.tick_snapshots import TickSnapshots
from reconciler.settings import ReconcilerSettings
from reconciler.trainers.controller import CreationResult, record_creations
from reconciler.watchdog import WallClock, Watchdog
from runtime.backoff import Backoff
from runtime.logs import keys

log = logging.getLogger(__name__)

_USAGE_EVERY_S = 60.0
"""Interval between two log lines about the cluster's capacity and the part of it that training uses."""
_WRITERS = 8
"""Number of concurrent writes; more of them would only queue in the API server."""


class Reconciler:
    """The control loop with its components; `reconciler.app` adds watches, leader election and probes."""

    _usage_logged_s = -inf  # when the cluster's use was last logged

    def __init__(
        self,
        api: Api,
        settings: ReconcilerSettings,
        *,
        cache: ClusterCache,
        policy: ActivePolicy,
        leads: Callable[[], bool],
        recorder: EventRecorder,
        metrics: ReconcilerMetrics,
        clocks: Clocks | None = None,
        pool: Executor | None = None,
        inbox: RecordInbox | None = None,
    ) -> None:
        """Creates the components; `start` starts their threads.

        Args:
            api: Sends reads and writes.
            settings: The settings of the process.
            cache: The watched objects.
            policy: The policy in effect.
            leads: Returns whether this process is the leader.
            recorder: Writes events.
            metrics: The counters and gauges to set.
            clocks: The clocks to read; by default those of the process.
            pool: Runs concurrent writes; by default a thread pool.
            inbox: Receives the decisions and observations to record.
        """
        self._settings = settings
        self._cache = cache
        self._policy = policy
        self._leads = leads
        self._recorder = recorder
        self._metrics = metrics
        self._clocks = clocks or Clocks()
        self._state_feed = ClusterStateFeed(cache, self._clocks.epoch_s)
        self.watchdog = Watchdog(self._clocks.monotonic_s)  # detects ticks that fail or hang
        self.wall_clock = WallClock(self._clocks.epoch_s, self._clocks.monotonic_s)
        self._pool = pool or ThreadPoolExecutor(_WRITERS, thread_name_prefix="write")
        self._history = RecentHistory()
        self.components = self._connect(api, settings.namespace)
        self.role_counts = RoleCounts()  # read by `reconciler.jobs.training_jobs`
        self._quarantine = self.components.quarantine
        inbox = inbox or RecordInbox()
        self._decisions = DecisionRecorder(self._quarantine, inbox)
        self._observer = Observer(inbox, metrics)
        self._job_scoped = (*self.components.job_scoped, recorder, self._decisions)
        """All components whose per-job state is dropped when the job is deleted."""
        self._reasons: dict[str, Reason] = {}  # job key -> its reason in the previous plan
        self._snapshots = TickSnapshots.of(settings)
        self._planned: frozenset[str] = frozenset()  # uids of the jobs in the previous plan
        self._uncovered: Mapping[
            str, int
        ] = {}  # job key -> `JobPlan.uncovered` in the previous plan
        self._policy_error = ""  # the last error that was reported
        self._policy_version = ""  # the version in effect during the last tick
        self._avoided: Mapping[str, Mapping[str, float]] = {}  # `Plan.avoided` of the previous plan
        self._idle = True  # whether the last tick finished its work; if so, the next waits
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconcile", daemon=True)

    def _connect(self, api: Api, namespace: str) -> Components:
        """Creates the components that act on jobs; they send requests only while this process leads."""
        return connect(
            LeaderOnlyApi(api, self._leads, on_end=self.watchdog.progress),
            cluster=self._state_feed.cluster,
            pool=self._pool,
            clocks=self._clocks,
            on_change=self._cache.changes.bump,
            poll_api=LeaderOnlyApi(api, self._leads),  # a poll does not count as progress of a tick
            namespace=namespace,
            policy=lambda: self._policy.current.policy,
        )

    def start(self) -> None:
        """Starts the threads; may be called once."""
        self.components.masters.start()
        self._thread.start()

    def stop(self) -> None:
        """Stops after the current tick."""
        self._stopping.set()
        self._cache.changes.bump()
        if self._thread.is_alive():
            self._thread.join(timeout=10.0)
        self.components.masters.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        version, backoff = -1, Backoff()
        while not self._stopping.is_set():
            tick_s = self._settings.tick_seconds if self._idle else WRITE_EVERY_S
            version = self._cache.wait_change(version, tick_s, self._settings.gather_seconds)
            if self.try_tick():
                backoff.reset()
            else:
                self._stopping.wait(backoff.next_s())
                version = -1  # retry without waiting for a change

    def try_tick(self) -> bool:
        """Runs one tick under the watchdog; returns whether it succeeded."""
        failed = True
        self.watchdog.begin()
        try:
            self.tick()
            failed = False
        except Exception:  # a loop that dies silently would freeze every job
            log.exception("tick failed")
            self._metrics.ticks_failed.inc()
        finally:
            self.watchdog.end(failed=failed)
        return not failed

    def tick(self) -> Plan | None:
        """Runs one tick; returns the plan that was executed, or None if this process must not act."""
        now_s = self._clocks.epoch_s()
        policy = self._policy.current.policy
        cluster = self._state_feed.cluster

        # 1. Take in the cluster's changes. Standbys do this too, so that they can take over at once.
        self._state_feed.follow(policy)
        pods, jobs = self._drain(now_s)
        self.components.writer.restore_newest(jobs)
        self.components.expectations.observe(cluster, pods, now_s)
        cool_down_s = policy.stability.cool_down_seconds
        for pod in self.components.expectations.evicted_by_others(pods):
            self._history.cool_downs.start(pod.node, now_s, cool_down_s)
        self.components.job_tracker.observe_pods(pods)
        self._report_released(self.components.trainers.collect_evicted(), now_s)
        self._observer.observe(pods, jobs, policy.objectives, now_s, leads=self._leads())
        self._forget_deleted(jobs)
        self._quarantine.apply(now_s)
        self._report_policy(now_s)
        if not self._may_act():
            self._stand_by()
            return None

        # 2. Bring accounting, objects and masters up to date, because the plan reads them; then plan.
        self.components.job_tracker.update_accounting(now_s)
        self._record_events(
            self.components.system_objects.ensure(cluster.jobs.values(), now_s, self._uncovered),
            now_s,
        )
        self._record_events(self.components.masters.reconcile(now_s, self._pool), now_s)
        self._record_events(self.components.servers.check_readiness(now_s), now_s)
        self.components.probe.update(now_s, policy.tiers.grace_seconds)
        self.components.scheduler_checker.advance(now_s)
        self._metrics.set_registration(self.components.scheduler_checker.check.registration)
        self._quarantine.apply(now_s)
        new_plan = self._plan(policy, now_s)
        self._metrics.set_plan(new_plan, cluster, now_s)
        self._metrics.set_quarantined(self._quarantine.jobs, self._quarantine.total)
        self._log_usage()

        # 3. Execute the plan, and note which creations failed.
        done_plan = plan_reports.as_executed(new_plan, self._execute(new_plan, policy, now_s))

        # 4. Write accounting and status of the jobs, including the trainers that were just created.
        written = self.components.job_tracker.write(now_s, self._pool, done_plan)
        has_deferred = self.components.probe.is_waiting or self.components.masters.has_deferred_jobs
        self._idle = written and not (new_plan.deferred or has_deferred)

        # 5. Record decisions and events about what was done, not about what was planned.
        self.role_counts.update(cluster, done_plan)
        self._decisions.record(done_plan, cluster, policy.node_pools, now_s)
        self._report_plan(done_plan, now_s)
        return new_plan

    def _plan(self, policy: Policy, now_s: float) -> Plan:
        """Returns the plan; objects whose data makes the planner fail are left out."""
        cluster = self._state_feed.cluster
        history = self._history.history(now_s, self.components.scheduler_checker.scheduling)

        def make_plan() -> Plan:
            return plan(cluster, policy, now_s, history)

        with self._metrics.planning.time():
            try:
                new_plan = make_plan()
            except Exception:  # noqa: BLE001 - usually caused by one object, and the others still need a plan
                clock_s = self._clocks.monotonic_s
                isolated = plan_without_culprits(cluster, make_plan, self._planned, clock_s)
                for culprit, error in isolated.culprits:
                    self._quarantine.blame(culprit, error)
                new_plan = isolated.plan
            else:
                if self._snapshots is not None:
                    self._snapshots.record(cluster, policy, now_s, history, new_plan)
        self._planned = frozenset(cluster.jobs[job_plan.key].uid for job_plan in new_plan.jobs)
        self._uncovered = {job.key: job.uncovered for job in new_plan.jobs if job.uncovered}
        return new_plan

    def _report_plan(self, done_plan: Plan, now_s: float) -> None:
        """Writes events about jobs that fell below their minimum, and about nodes newly avoided."""
        jobs = self._state_feed.cluster.jobs
        for job_plan in done_plan.jobs:
            with self._quarantine.contain(jobs[job_plan.key]):
                of_job = Plan(jobs=(job_plan,))
                self._record_events(
                    plan_reports.shortage_events(of_job, self._reasons, jobs), now_s
                )
        self._reasons = {job_plan.key: job_plan.reason for job_plan in done_plan.jobs}
        avoidances = plan_reports.avoidance_events(done_plan, self._avoided, jobs)
        self._record_events(avoidances, now_s)
        self._avoided = done_plan.avoided

    def _drain(
        self, now_s: float
    ) -> tuple[dict[str, ObjectChange[Pod]], dict[str, ObjectChange[Job]]]:
        """Applies the queued changes, and counts the trainers that they show as newly placed on a node."""
        cluster = self._state_feed.cluster
        waiting = {uid for uid, pod in cluster.waiting.items() if pod.role is Role.TRAINER}
        pods, jobs = self._state_feed.drain()
        self._history.pace.record(cluster.count_placed(waiting), now_s)
        return pods, jobs

    def _stand_by(self) -> None:
        """Drops state that the leader keeps up to date, because another process may lead now."""
        self.components.masters.pause()
        self.components.job_tracker.forget_counted()
        self._decisions.stand_by()

    def may_lead(self, *, leads: bool) -> bool:
        """Returns whether this process may take or keep the lease; `leads` says whether it holds it now."""
        return self._policy.current.usable and self.watchdog.may_lead(leads=leads)

    def _report_policy(self, now_s: float) -> None:
        """Writes one event for each new error of the policy document, and for each new version."""
        loaded, config, before = self._policy.current, self._cache.config, self._policy_version
        if config is None:
            return
        if loaded.version != before and loaded.source == "configmap":
            self._policy_version = loaded.version
            text = f"Policy version {loaded.version} is in force; before: {before}"
            for config_map in config.records() if before else ():
                self._recorder.record(Event(config_map, "PolicyInForce", text), now_s)
        error = loaded.error
        if error != self._policy_error:
            self._policy_error = error
            for config_map in config.records() if error else ():
                self._recorder.record(
                    Event(config_map, "PolicyInvalid", error, warning=True), now_s
                )

    def _log_usage(self) -> None:
        """Logs the cluster's capacity and the part of it that training uses, once a minute."""
        now_s = self._clocks.monotonic_s()
        if now_s - self._usage_logged_s >= _USAGE_EVERY_S:
            self._usage_logged_s = now_s
            log.info("cluster", extra=keys(uses=usage_line(self._state_feed.cluster)))

    def _may_act(self) -> bool:
        age_s = self._cache.age_s(self._clocks.monotonic_s())
        fresh = self._cache.synced and age_s < self._settings.stale_seconds
        usable = self._policy.current.usable
        leads = self._leads()
        self._metrics.set_state(leads=leads, age_s=age_s)
        return fresh and leads and usable

    def _forget_deleted(self, jobs: Mapping[str, ObjectChange[Job]]) -> None:
        """Drops the state of deleted jobs in every component."""
        for change in jobs.values():
            if change.new is None and change.last is not None:
                for component in self._job_scoped:
                    component.forget(change.last)

    def _execute(self, new_plan: Plan, policy: Policy, now_s: float) -> list[CreationResult]:
        """Executes the plan: releases first, because they free capacity, then creations.

        Returns:
            The results of creating trainers.
        """
        jobs = self._state_feed.cluster.jobs
        managed = unmanaged_jobs.managed_only(new_plan, jobs)
        self._history.record(managed, now_s, policy.stability.cool_down_seconds)
        self._report_released(self.components.trainers.evict(managed.releases), now_s)
        if not self._leads():
            return []
        grace_s = policy.tiers.grace_seconds
        self._record_events(self.components.servers.apply(managed, grace_s), now_s)
        results = self.components.trainers.create(
            managed.creates, grace_s, policy.node_pools, managed.growing
        )
        record_creations(results, self._history, self._state_feed.cluster, now_s)
        for result in results:
            self._report_creation(result, now_s)
        for job_plan in unmanaged_jobs.parallelism_changes(new_plan, jobs):
            self._set_parallelism(job_plan, now_s)
        return results

    def _report_released(self, evicted: list[Release], now_s: float) -> None:
        for release in evicted:
            self._decisions.record_release(release, now_s)
            log.info(
                "trainer released",
                extra=keys(
                    job=release.job, pod=release.pod, reason=release.reason, why=release.detail
                ),
            )
        self._metrics.count_released(evicted)
        self._observer.note_released(evicted, self._state_feed.cluster, now_s)
        jobs = self._state_feed.cluster.jobs
        self._record_events(plan_reports.release_events(evicted, jobs), now_s)

    def _report_creation(self, result: CreationResult, now_s: float) -> None:
        self._metrics.count_created(result)
        self._decisions.record_creation(result, now_s)
        log.info(
            "trainers created",
            extra=keys(
                job=result.job.key, tier=result.tier, created=result.created, error=result.error
            ),
        )
        event = plan_reports.creation_event(result)
        if event is not None:
            self._recorder.record(event, now_s)

    def _set_parallelism(self, job_plan: JobPlan, now_s: float) -> None:
        job = self._state_feed.cluster.jobs[job_plan.key]
        if self.components.writer.write_parallelism(job, job_plan.target):
            text = (
                f"Changed parallelism from {job.parallelism} to {job_plan.target}. Kubernetes' "
                "Job controller runs this Job, because it was created while EDL's webhook was "
                "unavailable; to have EDL manage it, delete and create it again"
            )
            self._recorder.record(Event(job, "ParallelismMoved", text, warning=True), now_s)

    def _record_events(self, events: Iterable[Event], now_s: float) -> None:
        for event in events:
            self._recorder.record(event, now_s)
