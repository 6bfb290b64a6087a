"""The figures of one run on a large cluster, and the counters they come from. Pure."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from e2e.cluster.components import APISERVER, ETCD, SCHEDULER
from e2e.control_plane import EDL_COMPONENTS

_WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
_REQUESTS = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<count>\S+)$")
_ENDED_WATCHES = re.compile(
    r'^apiserver_terminated_watchers_total\{group="",resource="pods"\} (?P<count>\S+)$',
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """One phase of a run: the trainers' start, or the burst of services."""

    pods: int
    """Pods that were wanted."""
    seconds: float
    """Time from the first request until all trainers ran."""
    cpu_s: Mapping[str, float]
    """Process -> CPU seconds."""
    writes: Mapping[str, int]
    """Kind of write, such as "PATCH jobs/status" -> how many succeeded, of all clients."""
    ended_watches: int = 0
    """Watches of pods that the API server ended because their client was too slow; it then lists all pods again."""

    @property
    def pods_per_s(self) -> float:
        """Pods that got to run per second."""
        return self.pods / self.seconds


@dataclass(frozen=True, slots=True)
class ScaleFigures:
    """One variant's run."""

    trainers: PhaseFigures
    burst: PhaseFigures
    others_percent: float
    """Share of all cores that other work took meanwhile."""

    @property
    def scheduler_s(self) -> float:
        """CPU seconds of kube-scheduler in both phases."""
        return self._cpu_s(SCHEDULER)

    @property
    def api_s(self) -> float:
        """CPU seconds of the API server and of etcd."""
        return self._cpu_s(APISERVER, ETCD)

    @property
    def edl_s(self) -> float:
        """CPU seconds of EDL's servers."""
        return self._cpu_s(*EDL_COMPONENTS)

    @property
    def total_s(self) -> float:
        """CPU seconds of all processes: those above, the built-in controllers and kubelets."""
        return sum(self.trainers.cpu_s.values()) + sum(self.burst.cpu_s.values())

    def _cpu_s(self, *names: str) -> float:
        phases = (self.trainers, self.burst)
        return sum(phase.cpu_s.get(name, 0.0) for phase in phases for name in names)


def requests(metrics: str) -> Counter[str]:
    """Successful writes so far by kind, from the text of the API server's metrics.

    Heartbeats of nodes and leaders (Leases, Nodes) are left out: they grow with time alone.
    """
    counts: Counter[str] = Counter()
    for line in metrics.splitlines():
        match = _REQUESTS.match(line)
        if match is None:
            continue
        labels = dict(_LABEL.findall(match["labels"]))
        if labels["verb"] not in _WRITES or not labels["code"].startswith("2"):
            continue
        if labels.get("dry_run") or labels["resource"] in ("leases", "nodes"):
            continue
        path = "/".join(filter(None, (labels["resource"], labels["subresource"])))
        counts[f"{labels['verb']} {path}"] += int(float(match["count"]))
    return counts


def ended_watches(metrics: str) -> int:
    """Watches of pods that the API server has ended so far, from the text of its metrics."""
    return sum(int(float(match["count"])) for match in _ENDED_WATCHES.finditer(metrics))
