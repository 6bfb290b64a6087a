"""What the journeys share: a small cluster with EDL beside it, and a namespace for each of them.

    with world(directory) as found, journey(found, "growth") as here:
        here.submit("mnist", low=2, high=20)
        here.until("20 trainers run", lambda: here.running("mnist"), lambda n: n == 20, 10)

Jobs have the sizes of `e2e.workload`: a node of 18 CPU takes three trainers of 5 CPU and one
service of 3 CPU.
"""

import contextlib
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import orjson

from e2e import workload
from e2e.cluster.components import SchedulerOptions
from e2e.cluster.local import Cluster, running
from e2e.cluster.nodes import node
from e2e.edl import ROOMS, Edl
from e2e.workload import QUICK, SERVICES
from kube import decode, request
from kube.client import Client
from kube.config import load
from kube.errors import KubeError, NotFound
from kube.reflector import Reflector
from kube.request import DEPLOYMENTS, EVENTS, JOBS, NAMESPACES, NODES, PODS, Resource
from policy import books
from policy.names import ANNOTATION_MASTER
from policy.snapshot import Job, Phase, Pod
from runtime import clock

T = TypeVar("T")

NODE_COUNT = 12
SLOTS = 3 * NODE_COUNT
"""Trainers that the cluster takes; a service still fits beside them on every node."""
_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_POLL_S = 0.2
_PROBE_S = 5.0
_START_S = 30.0
_CLEAN_S = 30.0
_LEAVE_S = 5.0


class PodHistory:
    """Every pod of the cluster as a watch shows it, those that are gone as they were last seen."""

    def __init__(self, api: Client) -> None:
        self._reflector = Reflector(api, PODS, decode.pod)
        self._lock = self._reflector.changes.condition
        self._ever: dict[str, Pod] = {}
        self._left: set[str] = set()
        self._reflector.listen(self._changed)

    @contextmanager
    def following(self) -> Iterator["PodHistory"]:
        """Watches for as long as the block lasts."""
        self._reflector.start()
        try:
            yield self
        finally:
            self._reflector.stop()

    def now(self, namespace: str) -> list[Pod]:
        """The pods that are there."""
        return [pod for pod in self._reflector.records() if pod.namespace == namespace]

    def ever(self, namespace: str) -> list[Pod]:
        """Those too that were there."""
        with self._lock:
            return [pod for pod in self._ever.values() if pod.namespace == namespace]

    def left(self, namespace: str) -> set[str]:
        """Names of the trainers that were told to stop, have ended, or are gone."""
        with self._lock:
            found = [self._ever[uid] for uid in self._left]
        return {pod.name for pod in found if pod.namespace == namespace and pod.role}

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        """On the watch thread, with the lock held."""
        pod = new or old
        if pod is None:
            return
        self._ever[pod.uid] = pod
        if new is None or new.deleting or new.terminal:
            self._left.add(pod.uid)


@dataclass(frozen=True, slots=True)
class World:
    """A cluster of `NODE_COUNT` nodes, EDL beside it, and who looks at both."""

    cluster: Cluster
    edl: Edl
    api: Client
    pods: PodHistory

    def send(self, asked: request.Request) -> Any:
        """The API server's answer to an administrator, decoded."""
        return orjson.loads(self.api.send(asked))

    def restore(self) -> None:
        """Starts what a journey has killed and not started again."""
        dead = [room for room in ROOMS if room not in self.edl.pids]
        for room in dead:
            self.edl.start(room)
        for room in dead:
            self.edl.wait_ready(room)


@contextmanager
def world(directory: Path) -> Iterator[World]:
    """Starts everything, and makes sure that nothing of it is left at the end."""
    edl = Edl(directory)
    with (
        running(directory, scheduler=SchedulerOptions(edl.scheduler)) as cluster,
        edl.beside(cluster),
        contextlib.closing(Client(load(cluster.admin), user_agent="edl-journeys")) as api,
        PodHistory(api).following() as pods,
    ):
        found = World(cluster, edl, api, pods)
        found.send(request.create(request.PRIORITYCLASSES, None, workload.service_class()))
        for number in range(NODE_COUNT):
            found.send(request.create(NODES, None, node(f"node-{number:03}")))
        until("nodes ready", lambda: _ready_nodes(found), lambda n: n == NODE_COUNT, _START_S)
        assert len(processes_of(directory)) > len(ROOMS)  # or their absence at the end says nothing
        yield found
    until("processes left", lambda: processes_of(directory), lambda left: not left, _LEAVE_S)


class Journey:
    """One namespace: submits, looks, waits."""

    def __init__(self, found: World, namespace: str) -> None:
        self.world = found
        self.namespace = namespace

    def submit(
        self,
        name: str,
        *,
        low: int,
        high: int,
        cpu: str = "5",
        spec: Mapping[str, Any] | None = None,
        lives: Mapping[str, str] | None = None,
        master: str = "",
    ) -> None:
        """Creates an elastic Job as a user would.

        Args:
            name: Of the Job.
            low: Its minimum of trainers.
            high: Its maximum.
            cpu: What each trainer requests.
            spec: More fields of the Job's spec.
            lives: Annotations of the trainers, which tell kwok when they end.
            master: "true" asks for a master.
        """
        scenario = replace(QUICK, min_trainers=low, max_trainers=high)
        manifest = workload.elastic_job(scenario, name)
        template = manifest["spec"]["template"]
        template["metadata"]["annotations"] |= lives or {}
        template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
        manifest["spec"] |= spec or {}
        manifest["metadata"]["namespace"] = self.namespace
        if master:
            manifest["metadata"]["annotations"][ANNOTATION_MASTER] = master
        self.world.send(request.create(JOBS, self.namespace, manifest))

    def services(self, count: int) -> None:
        """From now on that many services are wanted."""
        body = {"spec": {"replicas": count}}
        try:
            self.world.send(request.merge_patch(DEPLOYMENTS, self.namespace, SERVICES, body))
        except NotFound:
            manifest = workload.services(replace(QUICK, services=(count,)))
            manifest["metadata"]["namespace"] = self.namespace
            self.world.send(request.create(DEPLOYMENTS, self.namespace, manifest))

    def edit(self, job: str, body: Mapping[str, Any]) -> None:
        """Merges `body` into a Job, as `kubectl edit` would."""
        self.world.send(request.merge_patch(JOBS, self.namespace, job, body))

    def job(self, name: str) -> Job:
        """A Job as the API server has it now."""
        found = decode.job(self.world.send(request.get(JOBS, self.namespace, name)))
        assert found is not None
        return found

    def trainers(self, job: str) -> list[Pod]:
        """Trainers that are there and not about to leave, as the watch has them."""
        return [
            pod
            for pod in self.world.pods.now(self.namespace)
            if pod.job == job and pod.role and not (pod.deleting or pod.terminal)
        ]

    def running(self, job: str) -> int:
        """How many of them run."""
        return sum(pod.phase is Phase.RUNNING for pod in self.trainers(job))

    def services_running(self) -> int:
        """Services that run and were not told to stop."""
        return sum(
            pod.phase is Phase.RUNNING and not pod.deleting
            for pod in self.world.pods.now(self.namespace)
            if pod.role is None
        )

    def events(self, job: str, reason: str) -> list[dict[str, Any]]:
        """Events about a Job with that reason, the oldest first."""
        page = self.world.send(request.list_page(EVENTS, self.namespace))
        found = [e for e in page["items"] if e["involvedObject"]["name"] == job]
        told = [dict(event) for event in found if event["reason"] == reason]
        return sorted(told, key=lambda event: str(event["metadata"]["creationTimestamp"]))

    def wait_running(self, job: str, count: int, within_s: float) -> None:
        """Returns when exactly that many trainers run."""
        what = f"{count} trainers of {job} run"
        until(what, lambda: self.running(job), lambda n: n == count, within_s)

    def wait_services(self, count: int, within_s: float) -> float:
        """Returns when exactly that many services run; the seconds it took."""
        begun_s = clock.monotonic_s()
        what = f"{count} services run"
        until(what, self.services_running, lambda n: n == count, within_s)
        return clock.monotonic_s() - begun_s

    def wait_condition(self, job: str, kind: str, within_s: float) -> str:
        """Returns the reason of a condition once it is true."""

        def reasons() -> dict[str, str]:
            conditions = self.job(job).status.conditions
            return {c.type: c.reason for c in conditions if c.status == "True"}

        return until(f"{job} is {kind}", reasons, lambda found: kind in found, within_s)[kind]

    def wait_exact(self, job: str, within_s: float = 8.0) -> Job:
        """Returns the Job once nothing about it is wrong: see `faults`."""
        until(f"{job} is exact", lambda: self.faults(job), lambda found: not found, within_s)
        return self.job(job)

    def faults(self, job: str) -> list[str]:
        """What is wrong with a managed Job's books, status and trainers; nothing if all is well.

        No id was ever used twice; every id that was handed out is open or counted once; those
        that are open are the trainers that are there; the status counts these and no others.
        """
        found = self.job(job)
        kept, status = books.parse(found.books_text), found.status
        ever = [pod for pod in self.world.pods.ever(self.namespace) if pod.job == job and pod.role]
        ids = [pod.trainer_id for pod in ever]
        live = {pod.trainer_id for pod in self.trainers(job)}
        counted = kept.succeeded + kept.failed + kept.disrupted + kept.released
        wrong = {
            f"ids used twice: {sorted(ids)}": len(ids) != len(set(ids)),
            f"made without being in the books: {ids}": not set(ids) <= set(range(kept.next_id)),
            f"books do not add up: {kept}": kept.next_id != len(kept.open) + counted,
            f"open {sorted(kept.open)}, there {sorted(live)}": kept.open != live,
            f"{status} for {len(live)} trainers": status.active != len(live),
            f"{status} for {kept}": (status.failed, status.succeeded)
            != (kept.failed, kept.succeeded),
            f"orphans of {job}": any(pod.owner_uid != found.uid for pod in self.trainers(job)),
        }
        return [text for text, is_so in wrong.items() if is_so]

    def clean(self) -> None:
        """Removes all that was made here; returns when no pod is left."""
        for kind in (JOBS, DEPLOYMENTS):
            for item in self.world.send(request.list_page(kind, self.namespace))["items"]:
                name = item["metadata"]["name"]
                with contextlib.suppress(NotFound):
                    self.world.send(request.delete(kind, self.namespace, name))
        pods = self.world.pods
        until(
            f"{self.namespace} is empty",
            lambda: sorted(pod.name for pod in pods.now(self.namespace)),
            lambda left: not left,
            _CLEAN_S,
        )
        self.world.send(request.delete(NAMESPACES, None, self.namespace))


@contextmanager
def journey(found: World, name: str) -> Iterator[Journey]:
    """A namespace of its own, which is empty again at the end; whatever was killed runs again."""
    found.send(request.create(NAMESPACES, None, {"metadata": {"name": name}}))
    until("the namespace may have pods", lambda: _has_account(found, name), bool, _START_S)
    here = Journey(found, name)
    try:
        yield here
    finally:
        found.restore()
        here.clean()


def until(what: str, look: Callable[[], T], good: Callable[[T], bool], within_s: float) -> T:
    """Looks until what is seen is good, and returns it; says what was seen last if it never is."""
    deadline_s = clock.monotonic_s() + within_s
    while True:
        seen = look()
        if good(seen):
            return seen
        assert clock.monotonic_s() < deadline_s, f"{what}: not within {within_s} s; seen: {seen}"
        time.sleep(_POLL_S)


def readiness(url: str) -> dict[str, Any]:
    """What a room says at /readyz; its certificate is not looked at, as by a kubelet.

    Raises:
        OSError: nobody listens there.
    """
    parts = urlsplit(url)
    connection: HTTPConnection = HTTPConnection(parts.netloc, timeout=_PROBE_S)
    if parts.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = HTTPSConnection(parts.netloc, timeout=_PROBE_S, context=context)
    with contextlib.closing(connection):
        connection.request("GET", "/readyz")
        answer: dict[str, Any] = orjson.loads(connection.getresponse().read())
        return answer


def processes_of(directory: Path) -> list[str]:
    """Command lines of the processes that were told to use a directory: cluster and EDL alike."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(directory) in line:
                found.append(line)
    return found


def _ready_nodes(found: World) -> int:
    page = found.send(request.list_page(NODES, limit=0))
    nodes = [decode.node(item) for item in page["items"]]
    return sum(node.ready and not node.taints for node in nodes)


def _has_account(found: World, namespace: str) -> bool:
    try:
        found.api.send(request.get(_ACCOUNTS, namespace, "default"))
    except KubeError:
        return False
    return True
