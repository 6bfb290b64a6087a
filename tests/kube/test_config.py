"""Finding the API server."""

import logging
from pathlib import Path

import pytest
import yaml
from kubernetes.config import incluster_config, kube_config

from kube import config
from kube.errors import ConfigError
from tests.kube.https_server import kubeconfig

CA = b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"


def test_a_kubeconfig_is_read(tmp_path: Path) -> None:
    """Address, token, keepalive and pool size."""
    configuration = config.load(kubeconfig(tmp_path / "k", 4, CA), "test", pool_size=3)

    assert configuration.host == "https://127.0.0.1:4"
    assert str(configuration.get_api_key_with_prefix("BearerToken")).lower() == "bearer sesame"
    assert (configuration.keep_alive, configuration.connection_pool_maxsize) == (True, 3)


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    """One line with the path and a remedy."""
    with pytest.raises(ConfigError, match="/none: no usable API server configuration") as caught:
        config.load(tmp_path / "none")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "just text", "- a\n- b", "clusters: {"])
def test_a_kubeconfig_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    """Any invalid content gives a ConfigError."""
    (tmp_path / "k").write_text(text)

    with pytest.raises(ConfigError):
        config.load(tmp_path / "k")


@pytest.mark.parametrize("text", ["just text", "- a\n- b", "3"])
def test_a_file_that_is_no_mapping_is_called_so(tmp_path: Path, text: str) -> None:
    """In words of a kubeconfig, not in those of Python."""
    (tmp_path / "k").write_text(text)
    for read in (config.load, config.namespace):
        with pytest.raises(
            ConfigError, match="it is not a mapping of clusters, contexts and users"
        ):
            read(tmp_path / "k")


def _changed(path: Path, part: str, **fields: object) -> Path:
    """A kubeconfig whose only cluster or user has these fields besides."""
    document = yaml.safe_load(kubeconfig(path, 4, CA).read_text())
    document[f"{part}s"][0][part] = fields
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_plugin_for_credentials_that_fails_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The library would log that, and call without a token."""
    version = "client.authentication.k8s.io/v1"
    plugin = {"apiVersion": version, "command": "no-plugin", "interactiveMode": "Never"}
    path = _changed(tmp_path / "k", "user", exec=plugin)
    handlers = list(logging.getLogger().handlers)
    with pytest.raises(ConfigError, match=r"no credentials: .*No such file.*'no-plugin'"):
        config.load(path)

    assert (caplog.text, logging.getLogger().handlers) == ("", handlers)


def test_a_server_without_a_scheme_is_refused(tmp_path: Path) -> None:
    """It would get the token without TLS."""
    path = _changed(tmp_path / "k", "cluster", server="10.0.0.1:6443")
    with pytest.raises(
        ConfigError, match=r"server '10\.0\.0\.1:6443' is not a URL: write https://"
    ):
        config.load(path)


def test_an_unknown_context_is_refused(tmp_path: Path) -> None:
    """The error names it."""
    with pytest.raises(ConfigError, match="nope"):
        config.load(kubeconfig(tmp_path / "k", 4, CA), "nope")


def test_a_pod_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a kubeconfig, if a service account is mounted."""
    (tmp_path / "token").write_text("mounted")
    (tmp_path / "ca").write_bytes(CA)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    configuration = config.load()

    assert configuration.host == "https://10.0.0.1:443"
    assert configuration.get_api_key_with_prefix("BearerToken") == "bearer mounted"


def test_outside_of_a_cluster_the_default_kubeconfig_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own is used; if it does not exist, the text names it."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "k"))
    with pytest.raises(ConfigError, match="the default kubeconfig"):
        config.load()
    kubeconfig(tmp_path / "k", 4, CA)

    assert config.load().host == "https://127.0.0.1:4"


def test_the_namespace_is_that_of_the_context(tmp_path: Path) -> None:
    """As kubectl takes it; `default` where the context names none."""
    path = kubeconfig(tmp_path / "k", 4, CA)
    assert config.namespace(path) == "default"
    document = yaml.safe_load(path.read_text())
    document["contexts"][0]["context"]["namespace"] = "ml"
    path.write_text(yaml.safe_dump(document))

    assert config.namespace(path) == "ml"
    assert config.namespace(path, "test") == "ml"


def test_a_namespace_of_no_context_is_refused(tmp_path: Path) -> None:
    """The error names the context, or the file."""
    with pytest.raises(ConfigError, match="no context nope"):
        config.namespace(kubeconfig(tmp_path / "k", 4, CA), "nope")
    with pytest.raises(ConfigError, match="/none: no usable"):
        config.namespace(tmp_path / "none")
