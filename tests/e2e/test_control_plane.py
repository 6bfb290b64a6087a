"""EDL beside a local cluster: what is derived from the deploy files, before anything runs."""

import base64
import socket
import stat
from pathlib import Path
from typing import Any

from cryptography import x509

from e2e.control_plane import EDL_COMPONENTS, EdlControlPlane


def test_the_scheduler_asks_the_extender_here(tmp_path: Path) -> None:
    """Both extender entries get the local address and a CA; all else stays as deployed."""
    control_plane = EdlControlPlane(tmp_path)
    configuration = control_plane.scheduler
    entries = configuration["extenders"]
    assert len(entries) == 2
    for entry in entries:
        assert entry["urlPrefix"] == control_plane.url("extender")
        assert entry["ignorable"] is True
        assert _subject(entry, "caData") == "CN=edl-extender"
        assert _subject(entry, "certData") == "CN=kube-scheduler"
    assert configuration["kind"] == "KubeSchedulerConfiguration"


def test_a_scheduler_without_the_extender_is_configured_by_nobody(tmp_path: Path) -> None:
    """As on clusters whose control plane is somebody else's."""
    assert EdlControlPlane(tmp_path, registered=False).scheduler == {}


def _subject(entry: dict[str, Any], field: str) -> str:
    pem = base64.b64decode(entry["tlsConfig"][field])
    return x509.load_pem_x509_certificate(pem).subject.rfc4514_string()


def test_every_component_has_an_address_of_its_own(tmp_path: Path) -> None:
    """The ports differ and are free."""
    control_plane = EdlControlPlane(tmp_path)
    ports = {int(control_plane.url(component).rpartition(":")[2]) for component in EDL_COMPONENTS}
    assert len(ports) == len(EDL_COMPONENTS)
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    """Nobody else can read what lies beside the logs, and a second run makes keys of its own."""
    EdlControlPlane(tmp_path)
    first = {key.read_bytes() for key in tmp_path.rglob("*.key")}
    EdlControlPlane(tmp_path)
    keys = list(tmp_path.rglob("*.key"))
    assert len(keys) == 3
    assert not first & {key.read_bytes() for key in keys}
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_nothing_runs_before_it_is_asked_to(tmp_path: Path) -> None:
    """Creating it starts no process, and stopping one that runs nothing is harmless."""
    control_plane = EdlControlPlane(tmp_path)
    assert control_plane.pids == {}
    control_plane.stop()
