"""cert-manager issues and renews the extender's certificates, as docs/install.md offers it.

Its own controllers run beside a real API server, and the extender takes what they issue. For `make e2e-cert-manager`.
"""

import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from cryptography import x509
from edl.local.ports import free_ports

from e2e import commands
from e2e.cluster import build, golang
from e2e.cluster.local import Cluster, running
from e2e.cluster.process import Process
from e2e.cluster.progress import display
from e2e.cluster.toolchain import CERT_MANAGER, CERT_MANAGER_TOOLS, recipe
from e2e.waiting import until
from kube import request
from kube.client import Client
from kube.config import load
from kube.errors import KubeError
from kube.request import SECRETS, Resource
from policy.names import SYSTEM_NAMESPACE
from runtime import clock, extender_tls
from webhook import extender_secret

pytestmark = [pytest.mark.cert_manager, pytest.mark.timeout(1800)]  # the first run builds

DEPLOY = Path(__file__).parents[1] / "deploy"
CERTIFICATES = Resource("cert-manager.io", "v1", "certificates", "Certificate")
MODULE = "github.com/cert-manager/cert-manager"
SCHEDULER_SECRET = "edl-scheduler-tls"  # noqa: S105 - its name
WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Issued:
    """A cluster where cert-manager runs."""

    cluster: Cluster
    api: Client
    directory: Path

    def secret(self, name: str) -> dict[str, bytes]:
        """Files of a Secret of EDL; {} while there is none."""
        try:
            found = orjson.loads(self.api.send(request.get(SECRETS, SYSTEM_NAMESPACE, name)))
        except KubeError:
            return {}
        return {key: b64decode(text) for key, text in found["data"].items()}

    def certificate(self, name: str) -> Any:
        """Returns a Certificate as it is stored."""
        return orjson.loads(self.api.send(request.get(CERTIFICATES, SYSTEM_NAMESPACE, name)))

    def is_ready(self, name: str) -> bool:
        """Returns whether cert-manager has issued a Certificate and it is as asked for."""
        conditions = self.certificate(name).get("status", {}).get("conditions", ())
        return any((c["type"], c["status"]) == ("Ready", "True") for c in conditions)


def _crds() -> Path:
    """Returns the definitions of cert-manager's kinds, of the version that is built."""
    with display() as view:
        least = golang.needed(recipe(CERT_MANAGER).go_mod)
        go = golang.find(build.cache_root(os.environ), least, view)
    words = [str(go.binary), "mod", "download", "-json", MODULE]
    done = subprocess.run(
        words,
        cwd=CERT_MANAGER_TOOLS,
        env=build.environment(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(json.loads(done.stdout)["Dir"]) / "deploy" / "crds"


def _apply(cluster: Cluster, *words: str) -> None:
    done = commands.kubectl(cluster, "apply", "--server-side", *words)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issued]:
    """EDL installed with the component; the webhook was faster than cert-manager, as it may be."""
    directory = tmp_path_factory.mktemp("cert-manager")
    binaries = build.ensure(build.cache_root(os.environ), kit=CERT_MANAGER)
    overlay = directory / "overlay"
    overlay.mkdir()
    kustomization = {
        "resources": [os.path.relpath(DEPLOY / "base", overlay)],
        "components": [os.path.relpath(DEPLOY / "components" / "cert-manager", overlay)],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    with (
        running(directory / "cluster") as cluster,
        contextlib.closing(Client(load(cluster.admin), user_agent="edl-e2e")) as api,
    ):
        _apply(cluster, "-f", str(_crds()))
        words = ("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        assert commands.kubectl(cluster, *words, timeout_s=90).returncode == 0
        _apply(cluster, "-k", str(overlay))
        extender_secret.ensure(api, SYSTEM_NAMESPACE, clock.now())
        program = str(binaries.path("cert-manager-controllers"))
        log = directory / "cert-manager.log"
        process = Process("cert-manager", [program, f"--kubeconfig={cluster.admin}"], log)
        try:
            yield Issued(cluster, api, directory)
            assert process.exit_code is None, process.last_lines()
        finally:
            process.kill()


@pytest.fixture(scope="module")
def extender(issued: Issued) -> Iterator[int]:
    """The port of an extender that has its files from the Secret, under its own account."""
    account = f"system:serviceaccount:{SYSTEM_NAMESPACE}:edl-extender"
    until("certificates are ready", lambda: issued.is_ready("edl-extender-tls"), bool, WAIT_S)
    port, probes = free_ports(2)
    words = [
        *(
            sys.executable,
            "-m",
            "extender",
            "--kubeconfig",
            str(issued.cluster.kubeconfig(account)),
        ),
        *("--listen", f"127.0.0.1:{port}", "--probe-listen", f"127.0.0.1:{probes}"),
        *("--tls-secret", extender_tls.SECRET, "--tls-dir", str(issued.directory / "tls")),
    ]
    process = Process("extender", words, issued.directory / "extender.log", cwd=DEPLOY.parent)
    try:
        yield port
    finally:
        process.kill()


def _served(issued: Issued, port: int, *, with_client: bool = True) -> x509.Certificate:
    """Returns the certificate that kube-scheduler gets to see when it shows its own.

    Raises:
        OSError: one side does not trust the other, or nobody listens.
    """
    files = issued.secret(SCHEDULER_SECRET)
    context = ssl.create_default_context(cadata=files["ca.crt"].decode())
    if with_client:
        pair = issued.directory / "scheduler.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(files["tls.crt"] + files["tls.key"])
        context.load_cert_chain(pair)
    name = extender_tls.names(SYSTEM_NAMESPACE)[0]
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5.0) as plain,
        context.wrap_socket(plain, server_hostname=name) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: edl\r\nConnection: close\r\n\r\n")
        assert connection.recv(16).startswith(b"HTTP/1.1 ")
        return x509.load_der_x509_certificate(connection.getpeercert(binary_form=True) or b"")


def _try_served(issued: Issued, port: int) -> x509.Certificate | None:
    try:
        return _served(issued, port)
    except OSError:
        return None


def test_the_extender_and_kube_scheduler_trust_what_it_issues(
    issued: Issued, extender: int, report: Callable[[str], None]
) -> None:
    """It replaces what the webhook had made; nobody without a certificate of its CA is heard."""
    begun_s = clock.monotonic_s()
    until("kube-scheduler's is ready", lambda: issued.is_ready(SCHEDULER_SECRET), bool, WAIT_S)
    served = until("it serves", lambda: _try_served(issued, extender), bool, WAIT_S)
    report(f"served after {clock.monotonic_s() - begun_s:.1f} s")

    assert served is not None
    assert issued.certificate("edl-extender-tls")["status"]["notAfter"]
    with pytest.raises((OSError, AssertionError)):
        _served(issued, extender, with_client=False)


def test_the_extender_takes_a_renewed_one_up_without_a_restart(
    issued: Issued, extender: int, report: Callable[[str], None]
) -> None:
    """Renewed as `cmctl renew` does it; kube-scheduler's own goes on to be trusted."""
    before = until("it serves", lambda: _try_served(issued, extender), bool, WAIT_S)
    assert before is not None
    certificate = issued.certificate("edl-extender-tls")
    conditions = [c for c in certificate["status"]["conditions"] if c["type"] != "Issuing"]
    issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "-"}
    body = {"status": {"conditions": [*conditions, issuing]}}
    patch = request.merge_patch(
        CERTIFICATES, SYSTEM_NAMESPACE, "edl-extender-tls", body, subresource="status"
    )
    issued.api.send(patch)
    begun_s = clock.monotonic_s()

    def is_another() -> bool:
        served = _try_served(issued, extender)
        return served is not None and served.serial_number != before.serial_number

    until("another is served", is_another, bool, 2 * WAIT_S)
    report(f"a renewed certificate is served after {clock.monotonic_s() - begun_s:.1f} s")
