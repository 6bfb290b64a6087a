"""Assembles the webhook: watches, certificates, routes, readiness, metrics.

Called by `webhook.__main__`; `WebhookServer` lives in the worker process.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from threading import Event

from kube.active import add_policy_metric
from kube.api import Api
from kube.watch_metrics import add_watch_metrics
from runtime import clock, serve, web
from runtime.backoff import Backoff
from runtime.metrics import Metrics
from webhook import app, certificates, selection
from webhook.certificate_rotator import CertificateRotator
from webhook.live_context import LiveContext
from webhook.settings import WebhookSettings


class WebhookServer:
    """The webhook's components in one process.

    Args:
        api: The API server.
        settings: The webhook's settings.
        managed: Whether this process rotates the certificates.
    """

    def __init__(self, api: Api, settings: WebhookSettings, managed: bool) -> None:
        self.metrics = Metrics(settings.component)
        self.live_context = LiveContext(api, settings.namespace, settings.master_image)
        self.rotator = new_rotator(api, settings, self._selected) if managed else None
        if self.rotator is not None:
            self.live_context.on_policy(self.rotator.wake)
        self._settings = settings
        add_watch_metrics(self.metrics, self.live_context.reflectors)
        self.metrics.gauge(
            "watch_age_seconds", "Time since the last message of the quietest watch."
        ).set_function(lambda: self.live_context.age_s(clock.monotonic_s()))
        add_policy_metric(self.metrics, self.live_context.active)
        if self.rotator is not None:
            self.metrics.gauge(
                "certificate_expiry_timestamp_seconds",
                "When the served certificate ends, in epoch seconds; 0 before the first.",
            ).set_function(partial(_expiry_s, self.rotator))

    def service(self) -> serve.WebService:
        """Returns the service that `runtime.supervisor` runs."""
        flask = web.application(
            self._settings.component,
            registry=self.metrics,
            readiness=self.readiness,
            max_body_bytes=self._settings.max_body_bytes,
        )
        app.add_routes(flask, self.live_context.current, self.metrics)
        return serve.WebService(flask, self.start, self.stop)

    def start(self) -> None:
        """Starts the watches and the certificate rotation."""
        self.live_context.start()
        if self.rotator is not None:
            self.rotator.start()

    def stop(self) -> None:
        """Stops the watches and the certificate rotation."""
        self.live_context.stop()
        if self.rotator is not None:
            self.rotator.stop()

    def readiness(self) -> web.Readiness:
        """Returns ready once policy and classes are known; errors in later updates are only details.

        A replica that has not read a valid policy is not ready, so a rollout keeps replicas that have one.
        """
        details: dict[str, object] = {
            "synced": {name: r.synced for name, r in self.live_context.reflectors.items()},
            "policy": self.live_context.active.current.details(),
        }
        if self.rotator is not None:
            status = self.rotator.status
            details["certificate"] = {"expires": status.expires, "error": status.error}
        usable = self.live_context.active.current.usable
        return web.Readiness(self.live_context.synced and usable, details)

    def _selected(self) -> str:
        return selection.expression(self.live_context.active.current.policy)


def _expiry_s(rotator: CertificateRotator) -> float:
    """Returns when the certificate expires, in epoch seconds; 0 before the first certificate."""
    expires = rotator.status.expires
    return expires.timestamp() if expires is not None else 0.0


def new_rotator(
    api: Api, settings: WebhookSettings, selected: Callable[[], str] | None = None
) -> CertificateRotator:
    """Creates the rotator that `settings` describe; `selected` returns the expression for pods."""
    names = certificates.names(settings.namespace, settings.hosts)
    directory = settings.certificate_dir
    return CertificateRotator(
        api, settings.namespace, names, directory, clock.now, selected=selected
    )


def first_certificate(api: Api, settings: WebhookSettings) -> Path:
    """Returns the certificate file after creating or fetching it; waits indefinitely for the API server.

    While the API server is down, a file from a previous run is used.
    """
    rotator = new_rotator(api, settings)
    backoff = Backoff(jitter=Random().random)  # noqa: S311 - jitter needs no secrecy
    never = Event()
    while not rotator.try_sync() and not rotator.file.exists():
        never.wait(1.0 + backoff.next_s())
    return rotator.file
