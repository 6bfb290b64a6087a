"""The admin's command line: reports, exit codes, kube-scheduler's configuration, questions to servers."""

import base64
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import admin.__main__
from admin.servers import UnreachableError, readyz
from kube import request
from kube.errors import ConfigError, KubeError, Unauthorized, Unavailable
from kube.request import Request
from policy.names import SYSTEM_NAMESPACE
from tests.admin.cluster import BASE, AdminCluster

NAME = "edl-extender.edl-system.svc"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> AdminCluster:
    """The cluster that the command finds, with EDL."""
    api = AdminCluster()
    api.install()
    monkeypatch.setattr("kube.config.load", lambda *_: None)
    monkeypatch.setattr(admin.__main__, "Client", lambda *_, **__: api)
    return api


def _rendered(capsys: pytest.CaptureFixture[str], *flags: str) -> Any:
    assert admin.__main__.main(["scheduler-config", *flags]) == 0
    return yaml.safe_load(capsys.readouterr().out)


@pytest.mark.usefixtures("cluster")
def test_the_printed_configuration_is_that_of_the_manifests(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With what the manifests leave open: address, name in the certificate, and files."""
    printed = _rendered(capsys)
    written = yaml.safe_load((BASE / "scheduler-config.yaml").read_text())
    tls = {
        "serverName": NAME,
        "caFile": "/etc/kubernetes/edl/ca.crt",
        "certFile": "/etc/kubernetes/edl/client.crt",
        "keyFile": "/etc/kubernetes/edl/client.key",
    }

    assert [entry.pop("tlsConfig") for entry in printed["extenders"]] == [tls, tls]
    for entry in written["extenders"]:
        del entry["tlsConfig"]
    assert printed == written


@pytest.mark.parametrize(
    ("address", "url"),
    [("10.96.0.9", "https://10.96.0.9:8443"), ("fd00::9", "https://[fd00::9]:8443")],
)
def test_a_scheduler_in_the_hosts_network_gets_an_address(
    cluster: AdminCluster, address: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """There names of Services do not resolve; the certificate keeps its name all the same."""
    pod = {
        "metadata": {"name": "kube-scheduler-n0", "labels": {"component": "kube-scheduler"}},
        "spec": {"hostNetwork": True, "containers": [{"name": "s"}]},
    }
    cluster.put(request.PODS, pod, "kube-system")
    body = {"spec": {"clusterIP": address}}
    cluster.send(request.merge_patch(request.SERVICES, SYSTEM_NAMESPACE, "edl-extender", body))
    first, second = _rendered(capsys)["extenders"]

    assert (first["urlPrefix"], second["urlPrefix"]) == (url, url)
    assert first["tlsConfig"]["serverName"] == NAME
    assert _rendered(capsys, "--host", "edl.example")["extenders"][0]["urlPrefix"] == (
        "https://edl.example:8443"
    )


def test_certificates_can_be_part_of_it(
    cluster: AdminCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The CA is the one that the extender has."""
    (tmp_path / "client.crt").write_bytes(b"cert")
    (tmp_path / "client.key").write_bytes(b"key")
    data = {"ca.crt": base64.b64encode(b"ca").decode()}
    cluster.put(
        request.SECRETS, {"metadata": {"name": "edl-extender-tls"}, "data": data}, SYSTEM_NAMESPACE
    )
    entry, _ = _rendered(capsys, "--certificates", str(tmp_path))["extenders"]

    tls = {key: base64.b64decode(entry["tlsConfig"][f"{key}Data"]) for key in ("ca", "cert", "key")}
    assert tls == {"ca": b"ca", "cert": b"cert", "key": b"key"}


def test_what_is_missing_is_one_line(
    cluster: AdminCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files, the Secret with the CA, and the Service of a scheduler in the host's network."""
    flags = ["scheduler-config", "--certificates", str(tmp_path)]
    without_files = admin.__main__.main(flags), capsys.readouterr().err
    for end in ("crt", "key"):
        (tmp_path / f"client.{end}").touch()
    without_secret = admin.__main__.main(flags), capsys.readouterr().err
    pod = {
        "metadata": {"name": "kube-scheduler-n0", "labels": {"component": "kube-scheduler"}},
        "spec": {"hostNetwork": True, "containers": [{"name": "s"}]},
    }
    cluster.put(request.PODS, pod, "kube-system")
    without_address = admin.__main__.main(flags), capsys.readouterr().err

    for (code, text), words in (
        (without_files, "client.crt"),
        (without_secret, "Secret edl-extender-tls has no ca.crt"),
        (without_address, "Service edl-extender has no address: install EDL first"),
    ):
        assert code == 1
        assert words in text
        assert text.count("\n") == 1


@pytest.mark.usefixtures("cluster")
def test_commands_print_a_report_and_fail_for_errors(capsys: pytest.CaptureFixture[str]) -> None:
    """`doctor` finds no leader here; `check` and `remains` find nothing worse than warnings."""
    codes = [admin.__main__.main([name]) for name in ("remains", "check", "doctor")]
    text = capsys.readouterr().out

    assert codes == [
        0,
        0,
        1,
    ]  # the clock of this cluster in memory is years ahead, and has no leases
    assert "error   leader: no reconciler leads" in text


@pytest.mark.parametrize(
    "fault",
    [
        Unavailable("Connection refused", request="GET /version"),
        Unauthorized("Unauthorized", status=401, request="GET /version"),
    ],
)
def test_a_cluster_that_does_not_answer_is_one_line_and_no_success(
    cluster: AdminCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fault: KubeError,
) -> None:
    """Else a script would go on to install where nothing has been checked."""

    def send(_: Request) -> bytes:
        raise fault

    monkeypatch.setattr(cluster, "send", send)
    code, printed = admin.__main__.main(["check"]), capsys.readouterr()

    assert code == 1
    assert printed.out == ""
    assert (
        printed.err == f"admin: {fault}; use --kubeconfig or --context to select another cluster\n"
    )


def test_who_may_not_ask_for_the_version_gets_the_other_checks(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """A right that the caller lacks is a line of the report."""
    cluster.forbidden.add("version")

    assert admin.__main__.main(["check"]) == 0
    assert "warning Kubernetes: not checked" in capsys.readouterr().out


def test_flags_of_all_commands_may_stand_behind_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with kubectl; before it they count as well."""
    loaded: list[object] = []

    def load(*words: object) -> None:
        loaded.append(words)
        raise ConfigError("no such file")

    monkeypatch.setattr("kube.config.load", load)
    flags = ["--kubeconfig", "k", "--context", "c"]
    admin.__main__.main(["check", *flags])
    admin.__main__.main([*flags, "doctor"])

    assert loaded == [(Path("k"), "c")] * 2


@pytest.fixture
def kubectl(tmp_path: Path) -> Path:
    """A `kubectl port-forward` to a server that is not ready."""
    program = tmp_path / "kubectl"
    program.write_text(
        f"""#!{sys.executable}
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
namespace, pod = sys.argv[2], sys.argv[4]
if pod == "pod/gone":
    sys.exit('Error from server (NotFound): pods "gone" not found')
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503)
        self.end_headers()
        self.wfile.write(b'{{"synced": false}}' if pod == "pod/edl" else b"[1]")
server = HTTPServer(("127.0.0.1", 0), Handler)
print(f"Forwarding from 127.0.0.1:{{server.server_port}} -> 8080", flush=True)
server.serve_forever()
"""
    )
    program.chmod(0o755)
    return program


def test_a_server_is_asked_through_a_port_forward(kubectl: Path) -> None:
    """What it says counts although it is not ready, also where a proxy is set."""
    assert readyz([str(kubectl)], "edl-system", "edl") == {"synced": False}


@pytest.mark.parametrize(
    ("pod", "words"),
    [("gone", 'pods "gone" not found'), ("other", "not from a server of EDL")],
)
def test_a_server_that_cannot_be_asked_is_one_line(kubectl: Path, pod: str, words: str) -> None:
    """Kubectl's words, or that something else answers."""
    with pytest.raises(UnreachableError, match=words):
        readyz([str(kubectl)], "edl-system", pod)


def test_without_kubectl_the_flag_is_named(tmp_path: Path) -> None:
    """As where it has another name."""
    with pytest.raises(UnreachableError, match="set --kubectl"):
        readyz([str(tmp_path / "none")], "edl-system", "edl")
