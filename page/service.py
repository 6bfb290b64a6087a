"""Assembles the page's parts into a service."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from kubernetes.client.configuration import Configuration

from kube import config
from kube.active import ActivePolicy, add_policy_metric
from kube.api import Api
from kube.cache import ClusterCache
from kube.client import Client
from kube.watch_metrics import add_watch_metrics
from page.access import Authorizer
from page.app import PageRoutes
from page.cluster_view import ClusterView
from page.record_logs import RecordLogs
from page.settings import PageSettings
from page.streams import StreamBounds, Streams
from policy.names import POLICY_CONFIGMAP
from runtime import clock, web
from runtime.metrics import Metrics
from runtime.serve import WebService


@dataclass(frozen=True, slots=True)
class Watches:
    """The watches of the page, with the page's own permissions."""

    cache: ClusterCache
    policy: ActivePolicy
    logs: RecordLogs
    view: ClusterView

    @classmethod
    def of(
        cls,
        api: Api,
        namespace: str,
        clock_s: Callable[[], float] = clock.monotonic_s,
        epoch_s: Callable[[], float] = clock.epoch_s,
    ) -> Self:
        """Creates the watches without starting them.

        Args:
            api: Sends the requests.
            namespace: Namespace of the policy ConfigMap.
            clock_s: A monotonic clock.
            epoch_s: Returns the seconds since the epoch.
        """
        cache = ClusterCache(api, config_map=(namespace, POLICY_CONFIGMAP), clock_s=clock_s)
        policy = ActivePolicy.of(cache.config)
        logs = RecordLogs(api, cache.changes, clock_s)
        view = ClusterView(cache, logs, lambda: policy.current.policy, epoch_s)
        return cls(cache, policy, logs, view)

    def age_s(self, now_s: float) -> float:
        """Returns the seconds since the last message of the watch that has been silent the longest."""
        return max(self.cache.age_s(now_s), self.logs.reflector.age_s(now_s))

    def start(self) -> None:
        """Starts the watches."""
        self.cache.start()
        self.logs.reflector.start()
        self.view.start()

    def stop(self) -> None:
        """Stops the watches."""
        self.logs.reflector.request_stop()
        self.cache.stop()
        self.logs.reflector.stop()
        self.view.stop()


def build(settings: PageSettings, connection: Configuration) -> WebService:
    """Builds the service without starting it; `connection` holds the API server's address and credentials."""
    api = Client(connection, user_agent="edl-page")
    callers = Client(config.without_credentials(connection), user_agent="edl-page-caller")
    return assemble(settings, api, callers.with_token)


def assemble(settings: PageSettings, api: Api, with_token: Callable[[str], Api]) -> WebService:
    """Assembles the service for an API server.

    Args:
        settings: The page's settings.
        api: The API server, used with the page's own permissions.
        with_token: Returns the API server, used with a caller's token.
    """
    watches = Watches.of(api, settings.namespace)
    app = application(settings, watches, with_token)
    return WebService(app, watches.start, watches.stop)


def application(
    settings: PageSettings,
    watches: Watches,
    with_token: Callable[[str], Api],
    clock_s: Callable[[], float] = clock.monotonic_s,
) -> web.WebApp:
    """Returns the page's application.

    Args:
        settings: The page's settings.
        watches: The objects to show.
        with_token: Returns the API server, used with a caller's token.
        clock_s: A monotonic clock.
    """
    view = watches.view
    metrics = Metrics("page")
    reflectors = {**watches.cache.reflectors, "decisionlogs": watches.logs.reflector}
    add_watch_metrics(metrics, reflectors)
    add_policy_metric(metrics, watches.policy)
    age = metrics.gauge("watch_age_seconds", "Time since the last message of the quietest watch.")
    age.set_function(lambda: watches.age_s(clock_s()))

    def readiness() -> web.Readiness:
        age_s = watches.age_s(clock_s())
        details = {"synced": view.ready, "watch_age_seconds": round(age_s, 1)}
        if view.ready:
            details["view_age_seconds"] = round(view.epoch_s() - view.updated_s, 1)
        oldest_s = max(age_s, details.get("view_age_seconds", 0.0))
        return web.Readiness(view.ready and oldest_s < settings.stale_seconds, details)

    app = web.application(
        settings.component,
        registry=metrics,
        readiness=readiness,
        max_body_bytes=settings.max_body_bytes,
    )
    bounds = StreamBounds(
        settings.max_streams, settings.max_streams_per_caller, settings.stream_seconds
    )
    streams = Streams(view, bounds, clock_s, lambda: app.draining)
    authorizer = Authorizer(with_token, lambda: view.namespaces, settings.access_seconds, clock_s)
    PageRoutes(view, authorizer, streams, metrics).routes(app)
    return app
