"""`python -m bench.exposed_server NAME FOLDER`: a real server on a cluster in memory.

FOLDER has server.pem and ca.crt, and gets the file address. Used by `bench.stranger_targets`.
"""

import sys
from pathlib import Path

from bench.clusters import cluster
from bench.extender import application
from bench.page_cluster import LiveCluster
from bench.page_server import service
from bench.replay_api_server import ReplayApiServer
from extender.settings import ExtenderSettings
from kube.cache import ClusterCache
from lab.fake_api import FakeApi
from page.settings import PageSettings
from policy.names import POLICY_CONFIGMAP, SYSTEM_NAMESPACE
from reconciler.settings import ReconcilerSettings
from runtime import clock, metrics, supervisor, web
from runtime.serve import ServeSettings, WebService
from webhook.server import WebhookServer
from webhook.settings import WebhookSettings

NAMES = ("webhook", "extender", "reconciler", "page")
NODES = 200
_EVERY_S = 0.5
"""Between two changes of the page's cluster."""


def main(name: str, folder: Path) -> None:
    """Serves until SIGTERM."""
    files: dict[str, object] = {
        "announce_file": folder / "address",
        "listen": "127.0.0.1:0",
        "drain_seconds": 0.0,
    }
    tls = {
        "probe_listen": "127.0.0.1:0",
        "tls_cert": folder / "server.pem",
        "client_ca": folder / "ca.crt",
    }
    settings: ServeSettings
    if name == "webhook":
        webhook = WebhookSettings.model_validate({**files, **tls, "client_ca": None})
        settings = webhook
        supervisor.run(settings, lambda: WebhookServer(FakeApi(), webhook, managed=False).service())
    elif name == "extender":
        settings = ExtenderSettings.model_validate({**files, **tls})
        supervisor.run(settings, _extender)
    elif name == "page":
        page = PageSettings.model_validate({**files, **tls, "client_ca": None})
        live = LiveCluster(NODES, clock.epoch_s)
        settings = page
        supervisor.run(settings, lambda: service(page, live, _EVERY_S))
    else:
        settings = ReconcilerSettings.model_validate(files)
        supervisor.run(settings, _probes)


def _extender() -> WebService:
    api = ReplayApiServer(cluster(NODES))
    cache = ClusterCache(api, config_map=(SYSTEM_NAMESPACE, POLICY_CONFIGMAP))
    for reflector in cache.reflectors.values():
        reflector.follow_once()
    return WebService(application(cache))


def _probes() -> WebService:
    """The reconciler serves nothing but probes and metrics."""
    app = web.application(
        "reconciler",
        registry=metrics.Metrics("reconciler"),
        readiness=lambda: web.Readiness(ready=True),
        max_body_bytes=1 << 20,
    )
    return WebService(app)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
