"""Builds a reconciler process: watches, leader election, the control loop and probes."""

import logging
import socket
import uuid
from collections.abc import Callable, Mapping

from kubernetes.client.configuration import Configuration

from kube.active import ActivePolicy, add_policy_metric
from kube.cache import ClusterCache
from kube.client import Client
from kube.lease import Elector
from kube.watch_metrics import add_watch_metrics
from policy.names import POLICY_CONFIGMAP
from reconciler.jobs.role_counts import RoleCounts
from reconciler.jobs.training_jobs import TrainingJobController
from reconciler.leader_only import LeaderOnlyApi
from reconciler.loop import Reconciler
from reconciler.metrics import ReconcilerMetrics
from reconciler.records.events import EventRecorder
from reconciler.records.inbox import RecordInbox
from reconciler.records.writer import RecordWriter
from reconciler.settings import ReconcilerSettings
from reconciler.watchdog import LoopHealth, Watchdog
from runtime import clock, web
from runtime.metrics import Metrics
from runtime.serve import WebService

log = logging.getLogger(__name__)

LEASE = "edl-reconciler"


def build(settings: ReconcilerSettings, connection: Configuration) -> WebService:
    """Returns the service, not yet started; `connection` holds the API server's address and credentials."""
    api = Client(connection, user_agent="edl-reconciler")
    cache = ClusterCache(api, config_map=(settings.namespace, POLICY_CONFIGMAP))
    policy = ActivePolicy.of(cache.config)
    identity = settings.identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"

    def may_lead(leads: bool) -> bool:
        return loop.may_lead(leads=leads) and training_jobs.watchdog.may_lead(leads=leads)

    elector = _elector(api, settings, identity, may_lead)
    metrics = Metrics("reconciler")
    recorder = EventRecorder(api, identity)
    inbox = RecordInbox()
    writer = _record_writer(api, inbox, elector, policy, metrics)
    _add_drop_metric(metrics, recorder)
    loop = Reconciler(
        api,
        settings,
        cache=cache,
        policy=policy,
        leads=lambda: elector.is_leader,
        recorder=recorder,
        metrics=ReconcilerMetrics(metrics, settings.named_jobs),
        inbox=inbox,
    )
    training_jobs = _training_jobs(api, identity, elector, loop.role_counts)
    watchdogs = _watchdogs(metrics, loop, training_jobs)
    _add_answer_metric(metrics, elector)
    add_watch_metrics(metrics, {**cache.reflectors, **training_jobs.reflectors})
    add_policy_metric(metrics, policy)

    app = web.application(
        settings.component,
        registry=metrics,
        readiness=lambda: _readiness(elector, cache, policy, loop, watchdogs),
        is_alive=lambda: _is_alive(loop, watchdogs),
        max_body_bytes=settings.max_body_bytes,
    )

    def start() -> None:
        cache.start()
        recorder.start()
        writer.start()
        elector.start()
        loop.start()
        training_jobs.start()

    def stop() -> None:
        training_jobs.stop()
        loop.stop()
        writer.stop()
        elector.stop()
        recorder.stop()
        cache.stop()

    return WebService(app, start, stop)


def _add_drop_metric(metrics: Metrics, recorder: EventRecorder) -> None:
    metrics.total(
        "events_dropped_total",
        "Events of Jobs dropped because too many were queued.",
        lambda: recorder.dropped,
    )


def _add_answer_metric(metrics: Metrics, elector: Elector) -> None:
    age = metrics.gauge(
        "api_answer_age_seconds",
        "Time since the API server last answered a lease request; one is sent every 2 s.",
    )
    age.set_function(lambda: elector.answer_age_s)


def _training_jobs(
    api: Client, identity: str, elector: Elector, role_counts: RoleCounts
) -> TrainingJobController:
    return TrainingJobController(
        api,
        EventRecorder(api, identity),
        lambda: elector.is_leader,
        watch_api=api,
        role_counts=role_counts,
    )


def _record_writer(
    api: Client, inbox: RecordInbox, elector: Elector, policy: ActivePolicy, metrics: Metrics
) -> RecordWriter:
    """Returns the writer of the decision log, after registering its metrics."""
    writer = RecordWriter(
        LeaderOnlyApi(api, lambda: elector.is_leader),
        inbox,
        lambda: elector.is_leader,
        policy=lambda: policy.current.policy,
    )
    metrics.total(
        "records_written_total",
        "Records of decisions and observations written to the API server.",
        lambda: writer.written,
    )
    metrics.total(
        "records_dropped_total",
        "Records dropped because the API server was too slow or refused them.",
        lambda: writer.dropped,
    )
    metrics.total("record_bytes_total", "Bytes of DecisionLogs sent.", lambda: writer.bytes_written)
    return writer


def _watchdogs(
    metrics: Metrics, loop: Reconciler, training_jobs: TrainingJobController
) -> dict[str, Watchdog]:
    """Returns the watchdogs of the two loops, by their name in the probes, and registers their metrics."""
    watchdog = loop.watchdog

    def given_up() -> dict[str, int]:
        of_passes = training_jobs.watchdog.given_up
        return watchdog.given_up | {f"training_jobs_{name}": n for name, n in of_passes.items()}

    metrics.totals(
        "leases_given_up_total",
        "Times that this process gave up leadership, because its ticks or its passes over TrainingJobs "
        "failed or hung.",
        "reason",
        given_up,
    )
    metrics.total(
        "training_job_failures_total",
        "Failed updates of TrainingJobs, without refusals, which their status shows.",
        lambda: training_jobs.failures,
    )
    failing = metrics.gauge(
        "training_jobs_failing",
        "TrainingJobs whose last update failed, without refusals.",
    )
    failing.set_function(lambda: training_jobs.failing)
    pass_age = metrics.gauge(
        "training_jobs_pass_age_seconds",
        "Time since the last pass over TrainingJobs that ended without an error.",
    )
    pass_age.set_function(lambda: training_jobs.watchdog.health.tick_age_s)
    tick_age = metrics.gauge(
        "tick_age_seconds", "Time since the last tick that ended without an error."
    )
    tick_age.set_function(lambda: watchdog.health.tick_age_s)
    return {"ticks": watchdog, "training_jobs": training_jobs.watchdog}


def _readiness(
    elector: Elector,
    cache: ClusterCache,
    policy: ActivePolicy,
    loop: Reconciler,
    watchdogs: Mapping[str, Watchdog],
) -> web.Readiness:
    details = {
        "leader": elector.is_leader,
        "synced": cache.synced,
        "watch_age_seconds": round(cache.age_s(clock.monotonic_s()), 1),
        **{name: _health_details(watchdog.health) for name, watchdog in watchdogs.items()},
        "policy": policy.current.details(),
        "scheduling": loop.components.scheduler_checker.check.to_data(),  # only the leader checks
    }
    healthy = all(watchdog.is_healthy for watchdog in watchdogs.values())
    return web.Readiness(cache.synced and healthy and policy.current.usable, details)


def _is_alive(loop: Reconciler, watchdogs: Mapping[str, Watchdog]) -> bool:
    """Returns whether the process may keep running; if not, the kubelet must restart it."""
    hangs = not all(watchdog.health.alive for watchdog in watchdogs.values())
    return not (hangs or loop.wall_clock.was_set_back)


def _health_details(health: LoopHealth) -> dict[str, float]:
    return {
        "age_seconds": round(health.tick_age_s, 1),
        "stuck_seconds": round(health.stuck_s, 1),
        "failing_seconds": round(health.failing_s, 1),
    }


def _elector(
    api: Client, settings: ReconcilerSettings, identity: str, may_lead: Callable[[bool], bool]
) -> Elector:
    return Elector(
        api,
        settings.namespace,
        LEASE,
        identity,
        lease_s=settings.lease_seconds,
        renew_s=settings.lease_seconds * 2 / 3,
        retry_s=settings.lease_seconds * 2 / 15,
        may_lead=may_lead,
    )
