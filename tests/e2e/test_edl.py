"""EDL beside a local cluster: what is derived from the deploy files, before anything runs."""

import base64
import socket
import stat
from pathlib import Path

from cryptography import x509

from e2e.edl import ROOMS, Edl


def test_the_scheduler_asks_the_extender_here(tmp_path: Path) -> None:
    """Both extender entries get the local address and a CA; all else stays as deployed."""
    edl = Edl(tmp_path)
    configuration = edl.scheduler
    entries = configuration["extenders"]
    assert len(entries) == 2
    for entry in entries:
        assert entry["urlPrefix"] == edl.url("extender")
        assert entry["ignorable"] is True
        ca = base64.b64decode(entry["tlsConfig"]["caData"])
        assert x509.load_pem_x509_certificate(ca).subject.rfc4514_string() == "CN=edl-extender"
    assert configuration["kind"] == "KubeSchedulerConfiguration"


def test_every_room_has_an_address_of_its_own(tmp_path: Path) -> None:
    """The ports differ and are free."""
    edl = Edl(tmp_path)
    ports = {int(edl.url(room).rpartition(":")[2]) for room in ROOMS}
    assert len(ports) == len(ROOMS)
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_the_extenders_key_is_for_its_owner_only(tmp_path: Path) -> None:
    """Certificate and key lie in one file that nobody else can read."""
    Edl(tmp_path)
    (pem,) = (tmp_path / "edl").glob("*.pem")
    assert stat.S_IMODE(pem.stat().st_mode) == 0o600
    assert b"CERTIFICATE" in pem.read_bytes()


def test_nothing_runs_before_it_is_asked_to(tmp_path: Path) -> None:
    """Making an Edl starts no process, and stopping one that runs nothing is harmless."""
    edl = Edl(tmp_path)
    assert edl.pids == {}
    edl.stop()
