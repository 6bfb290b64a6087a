"""The extender's certificates in files, as their Secret has them."""

import base64
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kubernetes.client.configuration import Configuration

from extender import __main__, tls_files
from extender.settings import ExtenderSettings
from extender.tls_files import TlsFiles
from kube import request
from lab.fake_api import FakeApi
from policy.names import SYSTEM_NAMESPACE
from runtime import extender_tls, supervisor
from runtime.tls import Certificates
from tests.reconciler.waiting import until

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def _settings(directory: Path) -> ExtenderSettings:
    return ExtenderSettings(tls_secret=extender_tls.SECRET, tls_dir=directory)


def _put(api: FakeApi, files: dict[str, bytes]) -> None:
    data = {name: base64.b64encode(pem).decode() for name, pem in files.items()}
    body = {"metadata": {"name": extender_tls.SECRET}, "data": data}
    api.send(request.create(request.SECRETS, SYSTEM_NAMESPACE, body))


def test_the_files_are_those_of_the_secret_and_can_be_served(tmp_path: Path) -> None:
    """Readable by their owner alone; a second look writes nothing."""
    api, files = FakeApi(), extender_tls.files(SYSTEM_NAMESPACE, (), NOW)
    _put(api, files)
    tls = TlsFiles(api, _settings(tmp_path / "run"))
    assert tls.sync()
    written_ns = tls.server.stat().st_mtime_ns
    assert tls.sync()

    assert tls.server.read_bytes() == files["tls.crt"] + files["tls.key"]
    assert tls.client_ca.read_bytes() == files["ca.crt"]
    assert stat.S_IMODE(tls.server.stat().st_mode) == 0o600
    assert tls.server.stat().st_mtime_ns == written_ns
    Certificates(tls.server, None, tls.client_ca)


def test_another_content_is_taken_up(tmp_path: Path) -> None:
    """An admin deletes the Secret, and the webhook makes another."""
    api = FakeApi()
    tls = TlsFiles(api, _settings(tmp_path))
    first, second = (extender_tls.files(SYSTEM_NAMESPACE, (), NOW) for _ in range(2))
    _put(api, first)
    assert tls.sync()
    api.send(request.delete(request.SECRETS, SYSTEM_NAMESPACE, extender_tls.SECRET))
    assert not tls.sync()
    assert tls.client_ca.read_bytes() == first["ca.crt"]
    _put(api, second)
    assert tls.sync()

    assert tls.client_ca.read_bytes() == second["ca.crt"]
    assert tls.server.read_bytes() == second["tls.crt"] + second["tls.key"]


def test_it_waits_for_the_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extender starts while the webhook makes it."""
    monkeypatch.setattr(tls_files, "FIRST_S", 0.01)
    api = FakeApi()
    tls = TlsFiles(api, _settings(tmp_path))
    waiting = threading.Thread(target=tls.wait, daemon=True)
    waiting.start()
    assert waiting.is_alive()
    _put(api, extender_tls.files(SYSTEM_NAMESPACE, (), NOW))
    until(lambda: not waiting.is_alive())

    assert tls.server.exists()


def test_a_secret_that_lacks_a_file_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each look says the same, so that the log does once."""
    api, files = FakeApi(), extender_tls.files(SYSTEM_NAMESPACE, (), NOW)
    _put(api, {"tls.crt": files["tls.crt"], "tls.key": files["tls.key"]})
    tls = TlsFiles(api, _settings(tmp_path))

    assert not tls.sync()
    assert not tls.sync()
    assert not tls.server.exists()
    (record,) = caplog.records
    assert "ca.crt" in str(vars(record))


class _ClosableApi(FakeApi):
    """The API server with the Secret, as the client of a process that has not forked yet."""

    closed = False

    def close(self) -> None:
        self.closed = True


@pytest.mark.usefixtures("root_logger")
def test_the_command_serves_the_secrets_files_of_the_cluster_it_was_given(
    tmp_path: Path, nowhere: Path, absent_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read with the kubeconfig's connection, which is closed before workers fork."""
    api, files = _ClosableApi(), extender_tls.files(SYSTEM_NAMESPACE, (), NOW)
    _put(api, files)
    asked: list[str] = []
    served: list[tuple[ExtenderSettings, bool]] = []

    def client(connection: Configuration, **_options: str) -> _ClosableApi:
        asked.append(connection.host)
        return api

    def run(settings: ExtenderSettings, _build: object) -> None:
        served.append((settings, api.closed))

    monkeypatch.setattr(__main__, "Client", client)
    monkeypatch.setattr(supervisor, "run", run)
    monkeypatch.setattr(supervisor, "exit_on_signals", lambda: None)
    flags = (f"--tls-secret={extender_tls.SECRET}", f"--tls-dir={tmp_path}")
    assert __main__.main([*flags, f"--kubeconfig={nowhere}"]) == 0

    assert asked == [absent_server]
    ((settings, closed),) = served
    assert closed
    assert settings.tls_cert is not None
    assert settings.tls_cert.read_bytes() == files["tls.crt"] + files["tls.key"]
    assert settings.client_ca is not None
    assert settings.client_ca.read_bytes() == files["ca.crt"]
