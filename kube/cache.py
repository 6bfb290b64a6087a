"""The cluster in memory: nodes, pods and elastic jobs, and the policy ConfigMap.

Who calls: extender and reconciler, for snapshots and changes. Three or four watches share one
lock and one counter, so a snapshot never shows a partly applied list. The watches are separate
streams: a pod may appear before its node.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kube import decode, request
from kube.api import Api
from kube.changes import Changes
from kube.reflector import Reflector
from policy.snapshot import Job, Node, Pod, Snapshot
from runtime import clock

_ENDED = ("Succeeded", "Failed")


class ClusterCache:
    """A watch cache of nodes, pods, elastic jobs and, optionally, one ConfigMap.

    `pods`, `nodes`, `jobs` and `config` are reflectors; listen to them for single changes.
    """

    def __init__(
        self,
        api: Api,
        *,
        config_map: tuple[str, str] | None = None,
        clock_s: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        """Starts nothing.

        Args:
            api: The API server.
            config_map: (namespace, name) of a ConfigMap to watch as well.
            clock_s: A monotonic clock.
        """
        self.changes = Changes()
        self.decoder = decode.Decoder()
        share: dict[str, Any] = {"changes": self.changes, "clock_s": clock_s}
        self.nodes: Reflector[Node] = Reflector(api, request.NODES, self.decoder.node, **share)
        self.pods: Reflector[Pod] = Reflector(api, request.PODS, self._pod, **share)
        self.jobs: Reflector[Job] = Reflector(api, request.JOBS, self.decoder.job, **share)
        self.config: Reflector[decode.ConfigMap] | None = None
        if config_map is not None:
            namespace, name = config_map
            self.config = Reflector(
                api,
                request.CONFIGMAPS,
                decode.configmap,
                namespace=namespace,
                field_selector=f"metadata.name={name}",
                **share,
            )
        self._snapshot = Snapshot()
        self._snapshot_version = -1

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
        """Whether every first list is complete; before that, a snapshot is not the cluster."""
        return all(reflector.synced for reflector in self.reflectors.values())

    @property
    def version(self) -> int:
        """A counter that grows with every change of any record."""
        return self.changes.version

    @property
    def config_map(self) -> decode.ConfigMap | None:
        """The current ConfigMap; None if it does not exist or is not watched."""
        records = self.config.records() if self.config is not None else ()
        return records[0] if records else None

    def age_s(self, now_s: float) -> float:
        """Seconds since the last message of the watch that has been silent longest."""
        return max(reflector.age_s(now_s) for reflector in self.reflectors.values())

    def start(self) -> None:
        """Starts the watches; call it once."""
        for reflector in self.reflectors.values():
            reflector.start()

    def stop(self) -> None:
        """Stops all watches and wakes all threads that wait for changes."""
        self.changes.close()
        for reflector in self.reflectors.values():
            reflector.request_stop()
        for reflector in self.reflectors.values():
            reflector.stop()

    def wait_synced(self, timeout_s: float) -> bool:
        """Waits until every first list is complete; False if one is still missing."""
        return self.changes.wait_for(lambda: self.synced, timeout_s)

    def wait_change(self, after: int, timeout_s: float, gather_s: float = 0.0) -> int:
        """Waits for a version above `after` (see `Changes.wait`); returns at once after `stop`."""
        return self.changes.wait(after, timeout_s, gather_s)

    def snapshot(self) -> Snapshot:
        """The current state of the cluster; the same object until something changes."""
        with self.changes.condition:
            if self._snapshot_version != self.changes.version:
                self._snapshot = Snapshot(
                    self.nodes.records(), self.pods.records(), self.jobs.records()
                )
                self._snapshot_version = self.changes.version
            return self._snapshot

    def _pod(self, obj: decode.Object) -> Pod | None:
        """Decodes a pod; None for an ended pod of no job, which neither holds nor needs capacity.

        Ended pods of jobs are kept, because their results must still be counted.
        """
        if (obj.get("status") or {}).get("phase") in _ENDED:
            ended = self.decoder.pod(obj)
            return ended if ended.job else None
        return self.decoder.pod(obj)
