"""The page's wiring and command line."""

import threading
from pathlib import Path

import pytest
import yaml

from kube import config
from page.__main__ import main
from page.service import build
from page.settings import PageSettings
from tests.reconciler.waiting import until
from tests.support.commands import Commands


def test_a_process_without_an_api_server_is_not_ready(tmp_path: Path) -> None:
    """It lives, is not ready, and `stop` ends all of its threads."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    before = set(threading.enumerate())
    service = build(PageSettings(), config.load(path))
    service.start()
    client = service.app.test_client()
    alive, ready = client.get("/healthz"), client.get("/readyz")
    me = client.get("/api/v1/me", headers={"Authorization": "Bearer x"})
    service.stop()
    until(lambda: set(threading.enumerate()) <= before)

    assert (alive.status_code, ready.status_code, me.status_code) == (200, 503, 503)
    assert "edl_page_watch_age_seconds" in client.get("/metrics").text


@pytest.mark.parametrize("listen", ["0.0.0.0:8446", "[::]:8446", "10.0.0.1:8446", ":8446"])
def test_tokens_do_not_cross_the_network_in_clear_text(commands: Commands, listen: str) -> None:
    """Without a certificate it serves this host alone: one line says what to do."""
    completed = commands.run(main, f"--listen={listen}")

    assert completed.returncode == 2
    (line,) = completed.stderr.splitlines()
    assert line.startswith(f"page: --listen {listen} needs --tls-cert")


def test_a_missing_kubeconfig_is_one_line(commands: Commands, tmp_path: Path) -> None:
    """It names the file, and the exit code is 1."""
    completed = commands.run(main, f"--kubeconfig={tmp_path / 'none'}", "--listen=localhost:0")

    (line,) = completed.stderr.strip().splitlines()
    assert completed.returncode == 1
    assert line.startswith(f"page: {tmp_path / 'none'}: no usable API server configuration")
