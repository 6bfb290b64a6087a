"""The active policy: the last valid document of the policy ConfigMap.

Webhook, extender and reconciler read it, so that all three use the same policy. If the document is invalid or
the ConfigMap is deleted, only `error` is set and the previous policy stays active, because a deletion is never
meant to drop every quota. If there was no ConfigMap at the start, the default policy applies. If there was one
but its document has not been valid since the start, the policy is not `usable`: the default policy would drop
quotas and protected namespaces.
"""

import logging
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from kube.decode import ConfigMap
from kube.reflector import Reflector
from policy.document import parser as document
from policy.document.model import Policy
from policy.errors import DocumentError
from policy.names import POLICY_CONFIGMAP, POLICY_KEY
from runtime.logs import keys
from runtime.metrics import Metrics

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """The policy in effect, its source, and the error of a newer document that is invalid."""

    policy: Policy = field(default_factory=Policy)
    version: str = document.fingerprint("")
    """First twelve hex digits of the document's hash. The default policy has the hash of an empty document."""
    source: Literal["default", "configmap"] = "default"
    error: str = ""
    """Why the document in the cluster is not in effect; "" if it is in effect."""

    @property
    def usable(self) -> bool:
        """Whether decisions may follow this policy: some document was valid, or none existed at the start."""
        return self.source == "configmap" or not self.error

    def details(self) -> dict[str, str]:
        """Returns version, source and error, for /readyz, logs and status."""
        return {"version": self.version, "source": self.source, "error": self.error}

    def labels(self) -> dict[str, str]:
        """Returns the metric labels: version, source, and whether the cluster's document is not in effect."""
        stale = "true" if self.error else "false"
        return {"version": self.version, "source": self.source, "stale": stale}


class ActivePolicy:
    """The policy in effect, updated from the ConfigMap; reading it needs no lock."""

    def __init__(self) -> None:
        self.current = LoadedPolicy()
        """Replaced as a whole on every change; read it once per decision."""

    @classmethod
    def of(cls, reflector: Reflector[ConfigMap] | None) -> Self:
        """Returns the policy from the ConfigMap that `reflector` watches, or the default if it is None."""
        active = cls()
        if reflector is not None:
            reflector.listen(active.changed)
        return active

    def changed(self, _: ConfigMap | None, new: ConfigMap | None) -> None:
        """Activates a new document if it is valid. The reflector calls this for each change."""
        if new is None:
            self._reject(f"ConfigMap {POLICY_CONFIGMAP} is deleted: recreate it")
            return
        text = new.data.get(POLICY_KEY)
        if not isinstance(text, str):
            self._reject(
                f"ConfigMap {POLICY_CONFIGMAP} has no key {POLICY_KEY}: write the policy under it"
            )
            return
        try:
            policy = document.parse(text)
        except DocumentError as error:
            self._reject(f"ConfigMap {POLICY_CONFIGMAP}: {error}")
            return
        version = document.fingerprint(text)
        if self.current.error or version != self.current.version:
            log.info("policy in force", extra=keys(version=version))
        self.current = LoadedPolicy(policy, version, "configmap")

    def _reject(self, error: str) -> None:
        log.warning("policy invalid, keeping the previous one", extra=keys(error=error))
        self.current = replace(self.current, error=error)


def add_policy_metric(metrics: Metrics, policy: ActivePolicy) -> None:
    """Registers the metric `policy_info` of a process."""

    def read_labels() -> dict[str, str]:
        return policy.current.labels()

    metrics.info(
        "policy_info",
        "The policy in force; stale while the cluster's document cannot be used.",
        ("version", "source", "stale"),
        read_labels,
    )
