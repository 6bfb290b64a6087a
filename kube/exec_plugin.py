"""Gets credentials, as kubectl does, from the command under `exec` in a kubeconfig's user.

The kubernetes package runs such commands too, but if one fails, it only logs the reason and then sends requests
without credentials. So EDL runs the command, with the package's `ExecProvider`, before the package loads the
kubeconfig.
"""

import base64
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

from kubernetes.client import Configuration
from kubernetes.config import ConfigException
from kubernetes.config.exec_provider import ExecProvider

from runtime import clock

_new_provider: Callable[..., Any] = ExecProvider  # `ExecProvider` has no type annotations
_EARLY = timedelta(minutes=5)
"""Tokens are renewed this long before they expire."""
_OTHER_CREDENTIALS = ("auth-provider", "token", "tokenFile")
"""Fields of a user that the package prefers to `exec`."""


class ExecPlugin:
    """The command of one user of a kubeconfig.

    Args:
        user: The user's entry, which has a field `exec`.
        cluster: The entry of the cluster that is called.

    Raises:
        ConfigException: a field of `exec` is missing.
    """

    def __init__(self, user: Any, cluster: Any) -> None:
        self._user = user
        folder = Path(cluster.path).absolute().parent
        self._provider = _new_provider(user["exec"], str(folder), cluster)
        self._expires: datetime | None = None

    @classmethod
    def of_context(cls, document: Any, name: str | None) -> Self | None:
        """Returns the `exec` command of a context's user, or None if it is missing or other credentials replace it.

        Args:
            document: The kubeconfig, from the package's `KubeConfigMerger`.
            name: The context; None means the current one.

        Raises:
            ConfigException: the kubeconfig has no such context or cluster.
        """
        if name is None:
            name = document["current-context"]
        context = document["contexts"].get_with_name(name)["context"]
        entry = None
        if "user" in context and document.safe_get("users"):
            entry = document["users"].get_with_name(context["user"], safe=True)
        if entry is None or not entry.safe_get("user"):
            return None
        user = entry["user"]
        if "exec" not in user or any(field in user for field in _OTHER_CREDENTIALS):
            return None
        return cls(user, document["clusters"].get_with_name(context["cluster"])["cluster"])

    def log_in(self) -> None:
        """Runs the command, and writes its credentials into the user's entry.

        Raises:
            ConfigException: the command failed, or printed no credentials.
        """
        status = self._run()
        fields: dict[str, Any] = self._user.value
        if "token" in status:
            fields["token"] = status["token"]
            if "expirationTimestamp" in status:
                self._expires = datetime.fromisoformat(status["expirationTimestamp"])
        elif "clientCertificateData" in status and "clientKeyData" in status:
            for field, source in (
                ("client-certificate-data", "clientCertificateData"),
                ("client-key-data", "clientKeyData"),
            ):
                fields[field] = base64.b64encode(status[source].encode()).decode()
        else:
            raise ConfigException(
                "no credentials: the kubeconfig's exec command printed neither a token nor a certificate with its key"
            )
        fields.pop("exec", None)  # otherwise the package would run the command again

    def keep_fresh(self, configuration: Configuration) -> None:
        """Makes a loaded configuration run the command again when its token is about to expire."""
        if self._expires is not None:
            configuration.refresh_api_key_hook = self._refresh  # type: ignore[assignment] # the stubs infer its type from the default value None

    def _refresh(self, configuration: Configuration) -> None:
        if self._expires is not None and clock.now() > self._expires - _EARLY:
            self.log_in()
            configuration.api_key["BearerToken"] = f"Bearer {self._user.value['token']}"

    def _run(self) -> Mapping[str, Any]:
        try:
            status: Mapping[str, Any] = self._provider.run()
        except AttributeError as error:
            # On a terminal, the command's stderr goes to the user, and the package raises an AttributeError.
            raise ConfigException("no credentials: the kubeconfig's exec command failed") from error
        except (ConfigException, OSError) as error:
            raise ConfigException(f"no credentials: {error}") from error
        return status
