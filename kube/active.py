"""The policy in force: the last good document of the ConfigMap, whatever else is in there now.

Who calls: webhook, extender and reconciler alike, so that all three go by the same rule. A
document that cannot be read changes nothing but `error`; so does deleting the ConfigMap, since
nobody means "forget every quota" by that. Without one from the start, the default policy rules.
"""

import logging
from dataclasses import dataclass, field, replace
from typing import Literal

from kube import decode, request
from kube.client import Api
from kube.decode import ConfigMap
from kube.reflector import Reflector
from policy import document
from policy.errors import DocumentError
from policy.model import Policy
from policy.names import POLICY_CONFIGMAP, POLICY_KEY
from runtime.logs import keys

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Active:
    """A policy, where it came from, and what is wrong with anything newer."""

    policy: Policy = field(default_factory=Policy)
    version: str = document.fingerprint("")
    """Twelve hex digits of the document; of the empty one for the default."""
    source: Literal["default", "configmap"] = "default"
    error: str = ""
    """Why the document in the cluster is not the one in force; "" while it is."""

    def details(self) -> dict[str, str]:
        """For /readyz, logs and status: version, source, and the error."""
        return {"version": self.version, "source": self.source, "error": self.error}

    def labels(self) -> dict[str, str]:
        """For a metric: version, source, and whether the cluster's document is the active one."""
        stale = "true" if self.error else "false"
        return {"version": self.version, "source": self.source, "stale": stale}


class ActivePolicy:
    """Holds the policy in force and follows the ConfigMap; reading it needs no lock."""

    def __init__(self) -> None:
        self.current = Active()
        """Replaced as a whole on every change; take it once per decision."""

    def follow(self, reflector: Reflector[ConfigMap]) -> None:
        """Keeps to what `reflector` sees; it must watch the policy ConfigMap and nothing else."""
        reflector.listen(self.changed)

    def changed(self, _: ConfigMap | None, new: ConfigMap | None) -> None:
        """Takes over a new document if it is good (a listener of the reflector)."""
        if new is None:
            self._keep(f"ConfigMap {POLICY_CONFIGMAP} is gone: create it again")
            return
        text = new.data.get(POLICY_KEY)
        if not isinstance(text, str):
            self._keep(
                f"ConfigMap {POLICY_CONFIGMAP} has no key {POLICY_KEY}: write the policy under it"
            )
            return
        try:
            policy = document.parse(text)
        except DocumentError as error:
            self._keep(f"ConfigMap {POLICY_CONFIGMAP}: {error}")
            return
        version = document.fingerprint(text)
        if self.current.error or version != self.current.version:
            log.info("policy in force", extra=keys(version=version))
        self.current = Active(policy, version, "configmap")

    def _keep(self, error: str) -> None:
        log.warning("policy unusable, last good one stays", extra=keys(error=error))
        self.current = replace(self.current, error=error)


def policy_reflector(api: Api, namespace: str) -> Reflector[ConfigMap]:
    """A watch of the policy ConfigMap alone, for rooms without a `ClusterCache`."""
    return Reflector(
        api,
        request.CONFIGMAPS,
        decode.configmap,
        namespace=namespace,
        field_selector=f"metadata.name={POLICY_CONFIGMAP}",
    )
