"""What training and services use of the whole cluster: sums that each change of a pod updates."""

from policy.cluster import amounts
from policy.cluster.snapshot import Pod


class Usage:
    """Sums over the pods that are bound to a node and have not ended, by what they belong to."""

    def __init__(self) -> None:
        self.training: dict[str, int] = {}
        """Requests of trainers, parameter servers and masters; leaving ones included."""
        self.training_limits: dict[str, int] = {}
        """Limits of the same; where there is none, the request."""
        self.services: dict[str, int] = {}
        """Requests of all other pods, those of the system included."""

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
