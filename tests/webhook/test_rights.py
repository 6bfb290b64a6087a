"""What `deploy/base` allows webhook and extender is what their code does."""

from datetime import timedelta
from pathlib import Path

from extender.settings import ExtenderSettings
from extender.tls_files import TlsFiles
from kube import request
from kube.cache import ClusterCache
from policy.names import POLICY_CONFIGMAP, SYSTEM_NAMESPACE
from runtime import extender_tls
from tests.reconciler.server import Clock, Instant
from tests.support import rbac
from tests.support.rbac import RestrictedApi
from tests.webhook.cluster import KINDS, registrations
from webhook import certificates
from webhook.certificate_rotator import CertificateRotator
from webhook.live_context import LiveContext


def test_every_right_of_the_webhook_is_used(tmp_path: Path) -> None:
    """It writes its certificate, replaces it before it ends, and watches what it answers by."""
    clock, account = Clock(), rbac.account("edl-webhook")
    cluster = Instant(clock)
    for registration in registrations():
        cluster.ask(request.create(KINDS[registration["kind"]], None, registration))
    api = RestrictedApi(cluster, account)
    hosts = certificates.names(SYSTEM_NAMESPACE, ())
    rotator = CertificateRotator(api, SYSTEM_NAMESPACE, hosts, tmp_path, clock.now)
    rotator.sync()
    clock.advance(timedelta(days=3650).total_seconds())
    rotator.sync()
    live = LiveContext(api, SYSTEM_NAMESPACE)
    watches = rotator._watches  # noqa: SLF001 - nothing else starts them without their threads
    for reflector in (*watches, *live.reflectors.values()):
        reflector.follow_once()

    assert account.permissions - account.used == set()


def test_every_right_of_the_extender_is_used(tmp_path: Path) -> None:
    """It watches, and reads its certificate."""
    account = rbac.account("edl-extender")
    api = RestrictedApi(Instant(Clock()), account)
    cache = ClusterCache(api, config_map=(SYSTEM_NAMESPACE, POLICY_CONFIGMAP))
    for reflector in cache.reflectors.values():
        reflector.follow_once()
    settings = ExtenderSettings(tls_secret=extender_tls.SECRET, tls_dir=tmp_path)
    TlsFiles(api, settings).sync()

    assert account.permissions - account.used == set()
    assert {verb for _, _, _, verb in account.permissions} == {"list", "watch", "get"}
