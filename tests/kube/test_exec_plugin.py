"""Credentials that a kubeconfig's command prints."""

import json
import logging
import shlex
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from kube import config
from kube.client import Client
from kube.errors import ConfigError, Unauthorized
from kube.request import kinds
from runtime import certs, clock
from tests.kube.https_server import kubeconfig

CA = b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
VERSION = "client.authentication.k8s.io/v1"


def _kubeconfig(folder: Path, command: str, user: Mapping[str, str] | None = None) -> Path:
    """A kubeconfig whose user gets credentials from a shell command, and has other fields."""
    path = kubeconfig(folder / "k", 4, CA)
    document = yaml.safe_load(path.read_text())
    plugin = {
        "apiVersion": VERSION,
        "command": "sh",
        "args": ["-c", command],
        "interactiveMode": "Never",
    }
    document["users"][0]["user"] = {"exec": plugin, **(user or {})}
    path.write_text(yaml.safe_dump(document))
    return path


def _printing(status: Mapping[str, str]) -> str:
    """A command that prints these credentials."""
    printed = {"apiVersion": VERSION, "kind": "ExecCredential", "status": status}
    return f"printf %s {shlex.quote(json.dumps(printed))}"


def test_a_token_is_sent(tmp_path: Path) -> None:
    """The command runs once: the token has no end."""
    path = _kubeconfig(tmp_path, f"echo run >> {tmp_path}/runs; {_printing({'token': 'sesame'})}")
    configuration = config.load(path)

    for _ in range(2):
        assert configuration.get_api_key_with_prefix("BearerToken") == "Bearer sesame"
    assert (tmp_path / "runs").read_text().split() == ["run"]


def test_a_token_is_renewed_before_it_expires(tmp_path: Path) -> None:
    """Five minutes before; a token that lasts longer is kept."""
    token = tmp_path / "token"
    command = f"sed s/NEW/$(cat {token})/ {tmp_path}/printed"
    for minutes, expected in ((4, "Bearer second"), (60, "Bearer first")):
        expires = (clock.now() + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
        token.write_text("first")
        status = {"token": "NEW", "expirationTimestamp": expires}
        printed = {"apiVersion": VERSION, "kind": "ExecCredential", "status": status}
        (tmp_path / "printed").write_text(json.dumps(printed))
        configuration = config.load(_kubeconfig(tmp_path, command))
        token.write_text("second")

        assert configuration.get_api_key_with_prefix("BearerToken") == expected


def test_a_renewal_that_fails_names_the_reason(tmp_path: Path) -> None:
    """The request is not sent with the old token."""
    once = f"test ! -e {tmp_path}/ran || exit 3; touch {tmp_path}/ran; "
    expired = "2026-01-01T00:00:00Z"
    path = _kubeconfig(tmp_path, once + _printing({"token": "t", "expirationTimestamp": expired}))
    client = Client(config.load(path))
    with pytest.raises(Unauthorized, match="no token: no credentials: exec: process returned 3"):
        client.send(kinds("batch", "v1"))


def test_a_certificate_is_used(tmp_path: Path) -> None:
    """With its key, as files."""
    pair = certs.new_ca("me", clock.now())
    cert, key = pair.cert.decode(), pair.key.decode()
    path = _kubeconfig(tmp_path, _printing({"clientCertificateData": cert, "clientKeyData": key}))
    configuration = config.load(path)

    assert Path(str(configuration.cert_file)).read_text() == cert
    assert Path(str(configuration.key_file)).read_text() == key


def test_a_token_of_the_user_comes_first(tmp_path: Path) -> None:
    """As in kubectl: the command does not run."""
    configuration = config.load(_kubeconfig(tmp_path, "exit 1", {"token": "sesame"}))

    assert configuration.get_api_key_with_prefix("BearerToken") == "Bearer sesame"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo log in first >&2; exit 1", "exec: process returned 1. log in first"),
        ("echo hello", "failed to decode process output"),
        (_printing({"clientCertificateData": "c"}), "printed neither a token nor a certificate"),
    ],
)
def test_a_command_without_credentials_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, command: str, reason: str
) -> None:
    """The package would only log the reason, and send requests without credentials."""
    handlers = list(logging.getLogger().handlers)
    with pytest.raises(ConfigError, match=f"no credentials: .*{reason}"):
        config.load(_kubeconfig(tmp_path, command))

    assert (caplog.text, logging.getLogger().handlers) == ("", handlers)
