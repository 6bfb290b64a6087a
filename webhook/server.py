"""Puts the parts of the webhook together: watches, certificates, routes, readiness, metrics.

Who calls: `webhook.__main__`; `Server` lives in the worker process.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from threading import Event

from kube.backoff import Backoff
from kube.client import Api
from runtime import clock, serve, web
from runtime.metrics import Metrics
from webhook import app, certificates, selection
from webhook.keeper import Keeper
from webhook.live import Live
from webhook.settings import WebhookSettings


class Server:
    """The webhook of one process.

    Args:
        api: The API server.
        settings: Where and how.
        managed: Whether the certificates are our own to look after.
    """

    def __init__(self, api: Api, settings: WebhookSettings, managed: bool) -> None:
        self.metrics = Metrics(settings.room)
        self.live = Live(api, settings.namespace, settings.master_image)
        self.keeper = keeper(api, settings, self._selected) if managed else None
        if self.keeper is not None:
            self.live.on_policy(self.keeper.wake)
        self._settings = settings
        self.metrics.info(
            "policy_info",
            "The policy in force; stale while the cluster's document cannot be used.",
            self._policy_labels,
        )
        if self.keeper is not None:
            self.metrics.gauge(
                "certificate_expiry_seconds", "When the served certificate ends, in epoch seconds."
            ).set_function(partial(_expiry_s, self.keeper))

    def service(self) -> serve.Service:
        """What `runtime.serve` runs."""
        flask = web.application(
            self._settings.room,
            registry=self.metrics,
            readiness=self.readiness,
            max_body_bytes=self._settings.max_body_bytes,
            clients_named=self._settings.client_ca is not None,
        )
        app.add_routes(flask, self.live.state, self.metrics)
        return serve.Service(flask, self.start, self.stop)

    def start(self) -> None:
        """Begins to watch."""
        self.live.start()
        if self.keeper is not None:
            self.keeper.start()

    def stop(self) -> None:
        """Ends the watches."""
        self.live.stop()
        if self.keeper is not None:
            self.keeper.stop()

    def readiness(self) -> web.Readiness:
        """Ready once policy and classes are known; a stale policy or certificate is only shown."""
        details: dict[str, object] = {
            "synced": {name: r.synced for name, r in self.live.reflectors.items()},
            "policy": self.live.active.current.details(),
        }
        if self.keeper is not None:
            kept = self.keeper.kept
            details["certificate"] = {"expires": kept.expires, "error": kept.error}
        return web.Readiness(self.live.synced, details)

    def _selected(self) -> str:
        return selection.expression(self.live.active.current.policy)

    def _policy_labels(self) -> dict[str, str]:
        return self.live.active.current.labels()


def _expiry_s(keep: Keeper) -> float:
    """In epoch seconds; 0 before the first certificate."""
    expires = keep.kept.expires
    return expires.timestamp() if expires is not None else 0.0


def keeper(
    api: Api, settings: WebhookSettings, selected: Callable[[], str] | None = None
) -> Keeper:
    """Looks after the certificates that `settings` ask for, and the pods that are `selected`."""
    names = certificates.names(settings.namespace, settings.hosts)
    place = settings.certificate_dir
    return Keeper(api, settings.namespace, names, place, clock.now, selected=selected)


def first_certificate(api: Api, settings: WebhookSettings) -> Path:
    """The file to serve with, made or fetched; waits for the API server as long as it takes.

    A file left from before is good enough while the API server is down.
    """
    keep = keeper(api, settings)
    backoff = Backoff(Random())  # noqa: S311 - jitter keeps no secret
    never = Event()
    while not keep.try_round() and not keep.file.exists():
        never.wait(1.0 + backoff.next_s())
    return keep.file
