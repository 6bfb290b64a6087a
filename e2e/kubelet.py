"""What a kubelet does and kwok does not: it refuses pods that do not fit beside those of its node.

Two schedulers, or one that has not seen a binding yet, may place pods on a node whose CPU is taken. A
kubelet fails the pod that came last (OutOfcpu), whatever its priority, and its controller replaces it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from e2e.measure.pods import Kind, PodView
from e2e.workload import SERVICES_NAMESPACE, SYSTEM_NAMESPACE, TRAINING_NAMESPACE
from kube import request
from kube.api import Api
from kube.errors import KubeError

_NAMESPACES = {Kind.SERVICE: SERVICES_NAMESPACE, Kind.SYSTEM: SYSTEM_NAMESPACE}


class Admission:
    """The CPU that each node has given to its pods. Fed by a watch, on whose thread nothing waits."""

    def __init__(self, api: Api, cpu_millis: Mapping[str, int]) -> None:
        """Refuses nothing yet.

        Args:
            api: As an administrator.
            cpu_millis: Node -> its CPU.
        """
        self._api = api
        self._cpu_millis = cpu_millis
        self._admitted: dict[str, dict[str, int]] = defaultdict(dict)
        """Node -> uid of a pod on it -> its CPU in millis."""
        self._refused: set[str] = set()
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="kubelet")

    @contextmanager
    def playing(self) -> Iterator["Admission"]:
        """Sends until the end of the block."""
        try:
            yield self
        finally:
            self._sender.shutdown()

    def change(self, old: PodView | None, new: PodView | None) -> None:
        """A pod appeared (`old` is None), changed, or vanished (`new` is None)."""
        pod = new or old
        if pod is None or not pod.node:
            return
        admitted = self._admitted[pod.node]
        if new is None or new.ended:
            admitted.pop(pod.uid, None)
        elif pod.uid not in admitted and pod.uid not in self._refused:
            used, capacity = sum(admitted.values()), self._cpu_millis.get(pod.node, 0)
            if used + pod.cpu_millis <= capacity:
                admitted[pod.uid] = pod.cpu_millis
            else:
                self._refused.add(pod.uid)
                self._sender.submit(self._refuse, pod, used, capacity)

    def _refuse(self, pod: PodView, used: int, capacity: int) -> None:
        namespace = _NAMESPACES.get(pod.kind, TRAINING_NAMESPACE)
        body = {"status": _refusal(pod.cpu_millis, used, capacity)}
        with suppress(KubeError):  # deleted meanwhile
            self._api.send(
                request.merge_patch(request.PODS, namespace, pod.name, body, subresource="status")
            )


def _refusal(requested: int, used: int, capacity: int) -> dict[str, Any]:
    """Returns the status that a kubelet writes (pkg/kubelet/lifecycle/predicate.go); amounts in millis."""
    return {
        "phase": "Failed",
        "reason": "OutOfcpu",
        "message": (
            "Pod was rejected: Node didn't have enough resource: cpu, "
            f"requested: {requested}, used: {used}, capacity: {capacity}"
        ),
        "containerStatuses": None,
    }
