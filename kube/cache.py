"""The cluster in memory: nodes, pods and elastic jobs, and the policy ConfigMap.

Extender and reconciler use it. All its watches share one lock and one version counter, so a thread that
holds the lock never sees a half-applied list. The watches are separate streams: a pod may appear before
its node.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kube import decode, request
from kube.api import Api
from kube.changes import Changes
from kube.reflector import Reflector, stop_all
from policy.cluster.snapshot import Job, Node, Pod
from runtime import clock


class ClusterCache:
    """A watch cache of nodes, pods, elastic jobs and, optionally, one ConfigMap.

    `pods`, `nodes`, `jobs` and `config` are reflectors, whose `listen` reports single changes.
    """

    def __init__(
        self,
        api: Api,
        *,
        config_map: tuple[str, str] | None = None,
        clock_s: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        """Initializes the cluster cache.

        Args:
            api: The API server.
            config_map: (namespace, name) of a ConfigMap to watch as well.
            clock_s: A monotonic clock.
        """
        self.changes = Changes()
        share: dict[str, Any] = {"changes": self.changes, "clock_s": clock_s}
        self.nodes: Reflector[Node] = Reflector(api, request.NODES, decode.node, **share)
        self.pods: Reflector[Pod] = Reflector(api, request.PODS, _pod, **share)
        self.jobs: Reflector[Job] = Reflector(api, request.JOBS, decode.job, **share)
        self.config: Reflector[decode.ConfigMap] | None = None
        if config_map is not None:
            namespace, name = config_map
            share |= {"namespace": namespace, "name": name}
            self.config = Reflector(api, request.CONFIGMAPS, decode.configmap, **share)

    @property
    def reflectors(self) -> Mapping[str, Reflector[Any]]:
        """Resource -> reflector, for metrics."""
        watched: dict[str, Reflector[Any]] = {
            "nodes": self.nodes,
            "pods": self.pods,
            "jobs": self.jobs,
        }
        return watched if self.config is None else {**watched, "configmaps": self.config}

    @property
    def synced(self) -> bool:
        """Whether every watch has received its first list; until then, records are missing."""
        return all(reflector.synced for reflector in self.reflectors.values())

    def age_s(self, now_s: float) -> float:
        """Returns the seconds since the last message of the watch that has been silent the longest."""
        return max(reflector.age_s(now_s) for reflector in self.reflectors.values())

    def start(self) -> None:
        """Starts the watches; may be called once."""
        for reflector in self.reflectors.values():
            reflector.start()

    def stop(self) -> None:
        """Stops all watches and wakes all threads that wait for changes."""
        self.changes.close()
        stop_all(self.reflectors.values())

    def wait_change(self, after: int, timeout_s: float, gather_s: float = 0.0) -> int:
        """Waits for a version after `after` (see `Changes.wait`); returns at once after `stop`."""
        return self.changes.wait(after, timeout_s, gather_s)


def _pod(obj: decode.Object) -> Pod | None:
    """Decodes a pod; returns None for an ended pod without a job, which neither uses nor needs capacity.

    Ended pods of jobs are kept, because their results are still to be counted.
    """
    pod = decode.pod(obj)
    return pod if pod.job or not pod.terminal else None
