"""Connection settings of the API server: from a kubeconfig, or a pod's service account."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from kubernetes.client import Configuration
from kubernetes.config import (
    ConfigException,
    kube_config,
    list_kube_config_contexts,
    load_incluster_config,
    load_kube_config_from_dict,
)

from kube.errors import ConfigError
from kube.exec_plugin import ExecPlugin

_load_document: Callable[..., None] = load_kube_config_from_dict  # these functions are untyped
_load_in_cluster: Callable[..., None] = load_incluster_config
_contexts: Callable[..., Any] = list_kube_config_contexts
_merged: Callable[[str], Any] = kube_config.KubeConfigMerger
_UNUSABLE = (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, KeyError)
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_CONNECTION = (
    *("host", "ssl_ca_cert", "verify_ssl", "assert_hostname", "tls_server_name"),
    *("ca_cert_data", "proxy", "no_proxy", "proxy_headers", "proxy_ssl_context"),
    *("keep_alive", "connection_pool_maxsize"),
)
"""Fields of a configuration that describe the API server and the connection to it, but not the caller."""
POOL_SIZE = 16
"""Number of connections kept open: enough for a few watches and some writers at once."""


def load(
    kubeconfig: Path | None = None, context: str | None = None, *, pool_size: int = POOL_SIZE
) -> Configuration:
    """Loads the connection settings.

    Args:
        kubeconfig: A file; None means the pod's service account or, outside of a cluster, the
            user's own kubeconfig.
        context: The context to use; None means the current one.
        pool_size: How many connections are kept open.

    Raises:
        ConfigError: there is no usable configuration; the text names the file.
    """
    configuration = Configuration()
    configuration.keep_alive = True  # TCP probes detect half-open connections
    configuration.connection_pool_maxsize = pool_size
    if kubeconfig is None and context is None and _in_cluster(configuration):
        return configuration
    try:
        document = _merged(str(kubeconfig or kube_config.KUBE_CONFIG_DEFAULT_LOCATION)).config
        if document is None:
            raise ConfigException("no kubeconfig found")
        plugin = ExecPlugin.of_context(document, context)
        if plugin is not None:
            plugin.log_in()
        _load_document(
            config_dict=document,
            context=context,
            client_configuration=configuration,
            persist_config=False,  # do not rewrite tokens in the user's kubeconfig
        )
        if plugin is not None:
            plugin.keep_fresh(configuration)
        if "://" not in configuration.host:
            raise ConfigException(f"server {configuration.host!r} is not a URL: write https://...")
    except _UNUSABLE as error:
        raise _unusable(kubeconfig, error) from error
    return configuration


def without_credentials(configuration: Configuration) -> Configuration:
    """Returns a configuration for the same API server and CA, for requests with the tokens of callers."""
    other = Configuration()
    for name in _CONNECTION:
        setattr(other, name, getattr(configuration, name))
    return other


def namespace(kubeconfig: Path | None = None, context: str | None = None) -> str:
    """Returns the namespace that kubectl would use: that of the kubeconfig's context, or `default`.

    Args:
        kubeconfig: As for `load`; in a pod, None means the namespace of the pod.
        context: As for `load`.

    Raises:
        ConfigError: the file cannot be read, or has no such context.
    """
    if kubeconfig is None and context is None and _in_cluster(Configuration()):
        return _POD_NAMESPACE.read_text().strip()
    try:
        contexts, current = _contexts(None if kubeconfig is None else str(kubeconfig))
    except _UNUSABLE as error:
        raise _unusable(kubeconfig, error) from error
    named = {entry["name"]: entry for entry in contexts}
    chosen = current if context is None else named.get(context)
    if chosen is None:
        raise _unusable(kubeconfig, ConfigException(f"no context {context}"))
    return str((chosen.get("context") or {}).get("namespace") or "default")


def _unusable(kubeconfig: Path | None, error: Exception) -> ConfigError:
    place = str(kubeconfig)
    if kubeconfig is None:
        place = f"the default kubeconfig {kube_config.KUBE_CONFIG_DEFAULT_LOCATION}"
    reason = " ".join(str(error).split())[:200]
    if isinstance(error, TypeError | KeyError):
        reason = "it is not a mapping of clusters, contexts and users"
    if kubeconfig is not None and not kubeconfig.exists():
        reason = "there is no such file"
    return ConfigError(
        f"{place}: no usable API server configuration ({reason}); name another with "
        "--kubeconfig or the variable KUBECONFIG, or run in a pod with a service account"
    )


def _in_cluster(configuration: Configuration) -> bool:
    try:
        _load_in_cluster(client_configuration=configuration)
    except ConfigException:
        return False
    return True
