"""The certificates between kube-scheduler and the extender, made where an installation has none."""

import base64
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from kube import request
from kube.errors import NotFound
from lab.fake_api import FakeApi
from policy.names import SYSTEM_NAMESPACE
from runtime import certs, extender_tls
from runtime.extender_tls import SECRET
from tests.webhook.cluster import read
from webhook import extender_secret

NOW = datetime(2026, 11, 23, tzinfo=UTC)
ADDRESS = "10.96.12.34"


@pytest.fixture
def api() -> FakeApi:
    """A cluster with the extender's Service."""
    cluster = FakeApi()
    body = {"metadata": {"name": extender_tls.SERVICE}, "spec": {"clusterIP": ADDRESS}}
    cluster.send(request.create(request.SERVICES, SYSTEM_NAMESPACE, body))
    return cluster


def _files(api: FakeApi) -> dict[str, bytes]:
    data: dict[str, str] = read(api, request.SECRETS, SECRET, SYSTEM_NAMESPACE)["data"]
    return {name: base64.b64decode(text) for name, text in data.items()}


def test_both_sides_get_certificates_of_a_ca_whose_key_nobody_keeps(api: FakeApi) -> None:
    """The server's is for its names and the Service's address, which schedulers outside of pods call."""
    extender_secret.ensure(api, SYSTEM_NAMESPACE, NOW)
    files = _files(api)

    assert set(files) == {"ca.crt", "tls.crt", "tls.key", "client.crt", "client.key"}
    assert {ADDRESS, *extender_tls.names(SYSTEM_NAMESPACE)} == set(certs.hosts(files["tls.crt"]))
    for side in ("tls", "client"):
        assert certs.issued_by(files[f"{side}.crt"], files["ca.crt"])
        assert certs.matches(certs.Pair(files[f"{side}.crt"], files[f"{side}.key"]))
        assert certs.expires(files[f"{side}.crt"]) == NOW + certs.CA_LIFE


def test_cert_manager_takes_it_for_anothers(api: FakeApi) -> None:
    """One without the annotation it would keep, and renew when it ends (e2e/test_cert_manager.py)."""
    extender_secret.ensure(api, SYSTEM_NAMESPACE, NOW)
    metadata = read(api, request.SECRETS, SECRET, SYSTEM_NAMESPACE)["metadata"]

    assert metadata["annotations"] == {"cert-manager.io/issuer-name": "edl-webhook"}


def test_an_admins_own_secret_stays_as_it_is(api: FakeApi) -> None:
    """One with the server's files alone, too."""
    body: dict[str, Any] = {"metadata": {"name": SECRET}, "data": {"tls.crt": "eA=="}}
    api.send(request.create(request.SECRETS, SYSTEM_NAMESPACE, body))
    extender_secret.ensure(api, SYSTEM_NAMESPACE, NOW)

    assert _files(api) == {"tls.crt": b"x"}


def test_an_installation_without_extender_gets_none() -> None:
    """Its Service is what says that there is one."""
    api = FakeApi()
    extender_secret.ensure(api, SYSTEM_NAMESPACE, NOW)

    with pytest.raises(NotFound):
        read(api, request.SECRETS, SECRET, SYSTEM_NAMESPACE)


def test_replicas_that_start_together_mix_no_certificates(api: FakeApi) -> None:
    """One of them makes the Secret, and the others leave it."""
    together = threading.Barrier(4)

    def ensure() -> None:
        together.wait(60)
        extender_secret.ensure(api, SYSTEM_NAMESPACE, NOW)

    threads = [threading.Thread(target=ensure) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    files = _files(api)

    assert certs.issued_by(files["tls.crt"], files["ca.crt"])
    assert certs.issued_by(files["client.crt"], files["ca.crt"])


def test_a_headless_service_has_no_address() -> None:
    """The names are enough then."""
    api = FakeApi()
    body = {"metadata": {"name": extender_tls.SERVICE}, "spec": {"clusterIP": "None"}}
    api.send(request.create(request.SERVICES, SYSTEM_NAMESPACE, body))
    extender_secret.ensure(api, SYSTEM_NAMESPACE, NOW)

    assert set(certs.hosts(_files(api)["tls.crt"])) == set(extender_tls.names(SYSTEM_NAMESPACE))
