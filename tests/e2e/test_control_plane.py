"""EDL beside a local cluster: what is derived from the deploy files, before anything runs."""

import base64
import socket
import stat
from pathlib import Path
from typing import Any

from cryptography import x509

from e2e import scheduling
from e2e.control_plane import EDL_COMPONENTS, EdlControlPlane
from e2e.scheduling import OWN_SCHEDULER, SchedulingMode
from policy.document import parser as document
from policy.document.model import SchedulerSettings
from policy.names import POLICY_KEY


def test_the_scheduler_asks_the_extender_here(tmp_path: Path) -> None:
    """Both extender entries get the local address and a CA; all else stays as deployed."""
    control_plane = EdlControlPlane(tmp_path)
    configuration = control_plane.scheduler
    entries = configuration["extenders"]
    assert len(entries) == 2
    for entry in entries:
        assert entry["urlPrefix"] == control_plane.url("extender")
        assert entry["ignorable"] is True
        assert _subject(entry, "caData") == "CN=edl-extender-ca"
        assert _subject(entry, "certData") == "CN=kube-scheduler"
    assert configuration["kind"] == "KubeSchedulerConfiguration"


def test_a_scheduler_without_the_extender_is_configured_by_nobody(tmp_path: Path) -> None:
    """As on clusters whose control plane is somebody else's."""
    assert EdlControlPlane(tmp_path, mode=SchedulingMode.WITHOUT_EXTENDER).scheduler == {}


def test_a_scheduler_of_its_own_has_the_entries_of_the_cluster_s(tmp_path: Path) -> None:
    """Both files ask the extender alike; they differ in the names of profile and lease, and in TLS files."""
    (shared,) = scheduling.documents(scheduling.BASE / "scheduler-config.yaml")
    (own,) = scheduling.documents(scheduling.OWN / "scheduler-config.yaml")
    for entry in own["extenders"]:
        entry["tlsConfig"] = {}
    (profile,) = own["profiles"]
    names = (profile.pop("schedulerName"), own["leaderElection"]["resourceName"])
    shared["profiles"][0].pop("schedulerName")

    assert names == (OWN_SCHEDULER, OWN_SCHEDULER)
    for field in ("extenders", "profiles", "percentageOfNodesToScore"):
        assert own[field] == shared[field]
    assert EdlControlPlane(tmp_path, mode=SchedulingMode.OWN_SCHEDULER).scheduler == {}


def test_the_manifest_of_training_s_scheduler_names_what_there_is() -> None:
    """The files of its configuration are mounted, and its account may hold its lease and no other."""
    (own,) = scheduling.documents(scheduling.OWN / "scheduler-config.yaml")
    (deployment,) = scheduling.documents(scheduling.OWN / "scheduler.yaml")
    rbac = scheduling.documents(scheduling.OWN / "rbac.yaml")
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    tls = {name for entry in own["extenders"] for name in entry["tlsConfig"].values()}
    subjects = [subject for item in rbac for subject in item.get("subjects", ())]
    (role,) = [item for item in rbac if item["kind"] == "Role"]
    lease = own["leaderElection"]

    assert tls == {f"{places['tls']}/{name}" for name in ("ca.crt", "client.crt", "client.key")}
    assert f"--config={places['config']}/scheduler-config.yaml" in container["command"]
    assert {subject["name"] for subject in subjects} == {spec["serviceAccountName"]}
    assert role["rules"][0]["resourceNames"] == [lease["resourceName"]]
    assert role["metadata"]["namespace"] == lease["resourceNamespace"]


def test_training_s_scheduler_is_named_in_the_policy() -> None:
    """All else in the deployed policy stays, and the policy is valid."""
    (deployed,) = [
        item
        for item in scheduling.manifests(SchedulingMode.OWN_SCHEDULER)
        if item["kind"] == "ConfigMap"
    ]
    text = scheduling.with_own_scheduler(deployed)["data"][POLICY_KEY]
    before = document.parse(deployed["data"][POLICY_KEY])

    settings = SchedulerSettings(scheduler_name=OWN_SCHEDULER)
    assert document.parse(text) == before.model_copy(update={"scheduling": settings})


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
