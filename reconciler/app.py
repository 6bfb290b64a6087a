"""Puts one reconciler process together: watches, election, loop, probes."""

import logging
import socket
import uuid

from kubernetes.client.configuration import Configuration

from kube.active import ActivePolicy
from kube.cache import ClusterCache
from kube.client import Client
from kube.lease import Elector
from policy.names import POLICY_CONFIGMAP
from reconciler.events import Recorder
from reconciler.loop import Reconciler
from reconciler.meters import Meters
from reconciler.settings import ReconcilerSettings
from runtime import clock, web
from runtime.metrics import Metrics
from runtime.records import Records, routes
from runtime.serve import Service

log = logging.getLogger(__name__)

LEASE = "edl-reconciler"


def build(settings: ReconcilerSettings, connection: Configuration) -> Service:
    """The service, not started yet; `connection` is how to reach the API server."""
    api = Client(connection, user_agent="edl-reconciler")
    cache = ClusterCache(api, config_map=(settings.namespace, POLICY_CONFIGMAP))
    policy = ActivePolicy()
    if cache.config is not None:
        policy.follow(cache.config)
    identity = settings.identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    elector = Elector(
        api,
        settings.namespace,
        LEASE,
        identity,
        lease_s=settings.lease_seconds,
        renew_s=settings.lease_seconds * 2 / 3,
        retry_s=settings.lease_seconds * 2 / 15,
    )
    metrics = Metrics("reconciler")
    recorder = Recorder(api, identity)
    records = Records()
    kept = metrics.gauge("decisions_dropped_count", "Decision records that made room for newer.")
    kept.set_function(lambda: records.dropped)
    loop = Reconciler(
        api,
        settings,
        cache=cache,
        policy=policy,
        leads=lambda: elector.is_leader,
        recorder=recorder,
        records=records,
        meters=Meters(metrics),
    )

    def readiness() -> web.Readiness:
        details = {
            "leader": elector.is_leader,
            "synced": cache.synced,
            "watch_age_seconds": round(cache.age_s(clock.monotonic_s()), 1),
            "policy": policy.current.details(),
        }
        return web.Readiness(cache.synced, details)

    app = web.application(
        settings.room,
        registry=metrics,
        readiness=readiness,
        max_body_bytes=settings.max_body_bytes,
    )

    def absent() -> str:
        """Only the leader plans, so only it knows why."""
        if elector.is_leader:
            return ""
        return f"this replica does not lead; ask {elector.holder or 'the one that will'}"

    routes(app, records, "job", absent)

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

    return Service(app, start, stop)
