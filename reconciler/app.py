"""Builds a reconciler process: watches, leader election, control loop, probes."""

import logging
import socket
import uuid

from kubernetes.client.configuration import Configuration

from kube.active import ActivePolicy
from kube.cache import ClusterCache
from kube.client import Client
from kube.lease import Elector
from kube.watch_metrics import add_watch_metrics
from policy.names import POLICY_CONFIGMAP
from policy.scheduling import SchedulerCheck
from reconciler.events import EventRecorder
from reconciler.loop import Reconciler
from reconciler.metrics import ReconcilerMetrics
from reconciler.settings import ReconcilerSettings
from runtime import clock, web
from runtime.decision_log import DecisionLog, add_decisions_route
from runtime.metrics import Metrics
from runtime.serve import WebService

log = logging.getLogger(__name__)

LEASE = "edl-reconciler"


def build(settings: ReconcilerSettings, connection: Configuration) -> WebService:
    """The service, not started yet; `connection` describes the API server."""
    api = Client(connection, user_agent="edl-reconciler")
    cache = ClusterCache(api, config_map=(settings.namespace, POLICY_CONFIGMAP))
    policy = ActivePolicy()
    if cache.config is not None:
        policy.follow(cache.config)
    identity = settings.identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    elector = _elector(api, settings, identity)
    metrics = Metrics("reconciler")
    recorder = EventRecorder(api, identity)
    decision_log = DecisionLog()
    metrics.total(
        "decisions_dropped_total",
        "Decision records dropped for newer ones.",
        lambda: decision_log.dropped,
    )
    metrics.total(
        "events_dropped_total",
        "Events of Jobs that were not written because too many were queued.",
        lambda: recorder.dropped,
    )
    add_watch_metrics(metrics, cache.reflectors)
    loop = Reconciler(
        api,
        settings,
        cache=cache,
        policy=policy,
        leads=lambda: elector.is_leader,
        recorder=recorder,
        decision_log=decision_log,
        metrics=ReconcilerMetrics(metrics),
    )
    app = web.application(
        settings.component,
        registry=metrics,
        readiness=lambda: _readiness(
            elector, cache, policy, loop.components.scheduler_checker.check
        ),
        max_body_bytes=settings.max_body_bytes,
    )
    add_decisions_route(app, decision_log, "job", lambda: _reason_without_decisions(elector))

    def start() -> None:
        cache.start()
        recorder.start()
        elector.start()
        loop.start()

    def stop() -> None:
        loop.stop()
        elector.stop()
        recorder.stop()
        cache.stop()

    return WebService(app, start, stop)


def _readiness(
    elector: Elector, cache: ClusterCache, policy: ActivePolicy, check: SchedulerCheck
) -> web.Readiness:
    details = {
        "leader": elector.is_leader,
        "synced": cache.synced,
        "watch_age_seconds": round(cache.age_s(clock.monotonic_s()), 1),
        "policy": policy.current.details(),
        "scheduling": check.to_data(),  # only the leader checks
    }
    return web.Readiness(cache.synced, details)


def _reason_without_decisions(elector: Elector) -> str:
    """Why this replica has no decisions, "" for the leader: only the leader plans."""
    if elector.is_leader:
        return ""
    return f"this replica does not lead; ask {elector.holder or 'the future leader'}"


def _elector(api: Client, settings: ReconcilerSettings, identity: str) -> Elector:
    return Elector(
        api,
        settings.namespace,
        LEASE,
        identity,
        lease_s=settings.lease_seconds,
        renew_s=settings.lease_seconds * 2 / 3,
        retry_s=settings.lease_seconds * 2 / 15,
    )
