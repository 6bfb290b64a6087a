"""Requests of training and of services in the whole cluster, updated with each change of a pod."""

from policy.cluster import amounts
from policy.cluster.snapshot import Pod


class Usage:
    """Sums over the pods that are bound to a node and have not ended, for training and services."""

    def __init__(self) -> None:
        self.training: dict[str, int] = {}
        """Requests of trainers, parameter servers and masters, including leaving ones."""
        self.training_limits: dict[str, int] = {}
        """Limits of the same pods; for a resource without a limit, the request counts."""
        self.services: dict[str, int] = {}
        """Requests of all other pods, including system pods."""

    def add(self, pod: Pod) -> None:
        """Adds a bound pod."""
        amounts.add(self._of(pod), pod.requests)
        if pod.is_training:
            amounts.add(self.training_limits, {**pod.requests, **pod.limits})

    def remove(self, pod: Pod) -> None:
        """Removes a pod that was added."""
        amounts.subtract(self._of(pod), pod.requests)
        if pod.is_training:
            amounts.subtract(self.training_limits, {**pod.requests, **pod.limits})

    def _of(self, pod: Pod) -> dict[str, int]:
        return self.training if pod.is_training else self.services
