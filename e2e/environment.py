"""The environment of end-to-end tests: a small cluster with EDL, and a namespace for each test.

    with running_environment(directory) as environment:
        with isolated_namespace(environment, "growth") as namespace:
            namespace.submit("mnist", low=2, high=20)
            until("20 trainers run", lambda: namespace.running("mnist"), lambda n: n == 20, 10)

Jobs have the sizes of `e2e.workload`: a node of 18 CPU takes three trainers of 5 CPU and one
service of 3 CPU.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from e2e import workload
from e2e.cluster.build import Binaries
from e2e.cluster.components import SchedulerOptions
from e2e.cluster.local import Cluster, running
from e2e.cluster.nodes import count_ready, node
from e2e.control_plane import EDL_COMPONENTS, SERVICE_ACCOUNTS, EdlControlPlane
from e2e.scheduling import SchedulingMode
from e2e.waiting import until
from e2e.workload import QUICK, SERVICES
from kube import decode, request
from kube.client import Client
from kube.config import load
from kube.errors import KubeError, NotFound
from kube.reflector import Reflector
from kube.request import CONFIGMAPS, DEPLOYMENTS, EVENTS, JOBS, NAMESPACES, NODES, PODS, Request
from policy.cluster import trainer_accounting
from policy.cluster.snapshot import Job, Phase, Pod
from policy.names import (
    ANNOTATION_MASTER,
    ANNOTATION_QUEUE,
    POLICY_CONFIGMAP,
    POLICY_KEY,
    SCHEDULING_CONFIGMAP,
    SYSTEM_NAMESPACE,
)
from runtime import clock

NODE_COUNT = 12
SLOTS = 3 * NODE_COUNT
"""Trainers that the cluster takes; a service still fits beside them on every node."""
_PROBE_S = 10.0
_START_S = 30.0
_CLEAN_S = 60.0
_LEAVE_S = 30.0


class PodHistory:
    """Every pod of the cluster as a watch reports it; removed pods in their last state."""

    def __init__(self, api: Client) -> None:
        self._reflector = Reflector(api, PODS, decode.pod)
        self._lock = self._reflector.changes.condition
        self._ever: dict[str, Pod] = {}
        self._stopped: set[str] = set()
        self._reflector.listen(self._changed)

    @contextmanager
    def following(self) -> Iterator["PodHistory"]:
        """Runs the watch for the duration of the block."""
        self._reflector.start()
        try:
            yield self
        finally:
            self._reflector.stop()

    def now(self, namespace: str) -> list[Pod]:
        """Returns the existing pods of a namespace."""
        return [pod for pod in self._reflector.records() if pod.namespace == namespace]

    def ever(self, namespace: str) -> list[Pod]:
        """All pods of a namespace, removed ones included."""
        with self._lock:
            return [pod for pod in self._ever.values() if pod.namespace == namespace]

    def stopped_trainers(self, namespace: str) -> set[str]:
        """Names of the trainers that are terminating, have ended, or are removed."""
        with self._lock:
            pods = [self._ever[uid] for uid in self._stopped]
        return {pod.name for pod in pods if pod.namespace == namespace and pod.role}

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        """On the watch thread, with the lock held."""
        pod = new or old
        if pod is None:
            return
        self._ever[pod.uid] = pod
        if new is None or new.deleting or new.terminal:
            self._stopped.add(pod.uid)


@dataclass(frozen=True, slots=True)
class Environment:
    """A cluster with EDL, an administrator's client and a pod watch."""

    cluster: Cluster
    control_plane: EdlControlPlane
    api: Client
    pods: PodHistory

    def send(self, api_request: request.Request) -> Any:
        """Sends a request as an administrator; returns the decoded answer."""
        return orjson.loads(self.api.send(api_request))

    @property
    def policy(self) -> str:
        """The policy's text."""
        stored = self.send(request.get(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP))
        return str(stored["data"][POLICY_KEY])

    def set_policy(self, text: str) -> None:
        """Writes the policy as an admin would."""
        body = {"data": {POLICY_KEY: text}}
        self.send(request.merge_patch(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP, body))

    def declare_lost(self, node_name: str) -> None:
        """Marks a node as not ready, as the node controller would after its grace period."""
        condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        body = {"status": {"conditions": [condition]}}
        self.send(request.merge_patch(NODES, None, node_name, body, subresource="status"))

    def restore(self) -> None:
        """Restarts components that a test has killed and not restarted."""
        dead = [
            component
            for component in self.control_plane.components
            if component not in self.control_plane.pids
        ]
        for component in dead:
            self.control_plane.start(component)
        for component in dead:
            self.control_plane.wait_ready(component)


@contextmanager
def edl_environment(
    directory: Path,
    control_plane: EdlControlPlane,
    *,
    real_nodes: int = 0,
    images: Sequence[Path] = (),
    apiserver_args: Sequence[str] = (),
    binaries: Binaries | None = None,
) -> Iterator[Environment]:
    """Starts a cluster with EDL for the duration of the block.

    Args:
        directory: Gets the cluster's files.
        control_plane: EDL's components, not started yet.
        real_nodes: How many nodes run real containers; there are no others.
        images: Container images for them.
        apiserver_args: More flags of kube-apiserver.
        binaries: Kubernetes; None for the version that all journeys have.
    """
    with (
        running(
            directory,
            scheduler=SchedulerOptions(control_plane.scheduler),
            apiserver_args=apiserver_args,
            real_nodes=real_nodes,
            images=images,
            binaries=binaries,
        ) as cluster,
        control_plane.installed_in(cluster),
        contextlib.closing(Client(load(cluster.admin), user_agent="edl-e2e")) as api,
        PodHistory(api).following() as pods,
    ):
        yield Environment(cluster, control_plane, api, pods)


@contextmanager
def running_environment(
    directory: Path,
    mode: SchedulingMode = SchedulingMode.EXTENDER,
    apiserver_args: Sequence[str] = (),
    *,
    binaries: Binaries | None = None,
) -> Iterator[Environment]:
    """Starts `NODE_COUNT` played nodes with EDL; checks that no process is left at the end.

    Args:
        directory: Gets the cluster's files.
        mode: How training pods are scheduled.
        apiserver_args: More flags of kube-apiserver.
        binaries: Kubernetes; None for the version that all journeys have.
    """
    control_plane = EdlControlPlane(directory, mode=mode)
    with edl_environment(
        directory, control_plane, apiserver_args=apiserver_args, binaries=binaries
    ) as environment:
        create_nodes(environment)
        wait_registered(environment, mode)
        assert len(processes_of(directory)) > len(
            EDL_COMPONENTS
        )  # else the check at the end proves nothing
        yield environment
    until(
        "processes left",
        lambda: processes_of(directory),
        lambda command_lines: not command_lines,
        _LEAVE_S,
    )


def create_nodes(environment: Environment, nodes: Sequence[workload.Manifest] = ()) -> None:
    """Creates played nodes and the class of services; returns when nodes are ready.

    Args:
        environment: The cluster.
        nodes: The nodes; `NODE_COUNT` of 18 CPU by default.
    """
    nodes = nodes or played_nodes()
    send_nodes(environment, nodes)
    until("nodes ready", lambda: count_ready(environment.api), lambda n: n == len(nodes), _START_S)


def played_nodes() -> list[workload.Manifest]:
    """`NODE_COUNT` nodes of 18 CPU."""
    return [node(f"node-{number:03}") for number in range(NODE_COUNT)]


def send_nodes(environment: Environment, nodes: Sequence[workload.Manifest]) -> None:
    """Creates nodes and the class of services; does not wait until nodes are ready."""
    environment.send(request.create(request.PRIORITYCLASSES, None, workload.service_class()))
    for manifest in nodes:
        environment.send(request.create(NODES, None, manifest))


def wait_registered(
    environment: Environment, mode: SchedulingMode = SchedulingMode.EXTENDER
) -> None:
    """Waits until EDL knows whether the scheduler asks its extender."""
    expected = "missing" if mode is SchedulingMode.WITHOUT_EXTENDER else "registered"
    until(
        "EDL knows its scheduler",
        lambda: _registration(environment),
        lambda state: state == expected,
        _START_S,
    )


class IsolatedNamespace:
    """A Kubernetes namespace for one test: submits Jobs, reads state and waits for conditions."""

    def __init__(self, environment: Environment, name: str) -> None:
        self.environment = environment
        self.name = name

    def submit(
        self,
        name: str,
        *,
        low: int,
        high: int,
        cpu: str = "5",
        spec: Mapping[str, Any] | None = None,
        pod_annotations: Mapping[str, str] | None = None,
        master: str = "",
        queue: str = "",
    ) -> None:
        """Creates an elastic Job as a user would.

        Args:
            name: The Job's name.
            low: Minimum number of trainers.
            high: Maximum number of trainers.
            cpu: What each trainer requests.
            spec: More fields of the Job's spec.
            pod_annotations: Annotations of the trainers that control when kwok ends them.
            master: "true" asks for a master.
            queue: The queue that it names.
        """
        scenario = replace(QUICK, min_trainers=low, max_trainers=high)
        manifest = workload.elastic_job(scenario, name)
        template = manifest["spec"]["template"]
        template["metadata"]["annotations"] |= pod_annotations or {}
        template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
        manifest["spec"] |= spec or {}
        manifest["metadata"]["namespace"] = self.name
        if master:
            manifest["metadata"]["annotations"][ANNOTATION_MASTER] = master
        if queue:
            manifest["metadata"]["annotations"][ANNOTATION_QUEUE] = queue
        self.environment.send(request.create(JOBS, self.name, manifest))

    def services(self, count: int) -> None:
        """Sets the number of service replicas."""
        body = {"spec": {"replicas": count}}
        try:
            self.environment.send(request.merge_patch(DEPLOYMENTS, self.name, SERVICES, body))
        except NotFound:
            manifest = workload.services(replace(QUICK, services=(count,)))
            manifest["metadata"]["namespace"] = self.name
            self.environment.send(request.create(DEPLOYMENTS, self.name, manifest))

    def edit(self, job: str, body: Mapping[str, Any]) -> None:
        """Merges `body` into a Job, as `kubectl edit` would."""
        self.environment.send(request.merge_patch(JOBS, self.name, job, body))

    def job(self, name: str) -> Job:
        """Returns a Job in its current state."""
        job = decode.job(self.environment.send(request.get(JOBS, self.name, name)))
        assert job is not None
        return job

    def trainers(self, job: str) -> list[Pod]:
        """Trainers that exist and are neither terminating nor ended, according to the watch."""
        return [
            pod
            for pod in self.environment.pods.now(self.name)
            if pod.job == job and pod.role and not (pod.deleting or pod.terminal)
        ]

    def running(self, job: str) -> int:
        """Number of running trainers."""
        return sum(pod.phase is Phase.RUNNING for pod in self.trainers(job))

    def services_running(self) -> int:
        """Number of running services that are not terminating."""
        return sum(
            pod.phase is Phase.RUNNING and not pod.deleting
            for pod in self.environment.pods.now(self.name)
            if pod.role is None
        )

    def events(self, job: str, reason: str) -> list[dict[str, Any]]:
        """Events of a Job with this reason, oldest first."""
        page = self.environment.send(request.list_page(EVENTS, self.name))
        job_events = [e for e in page["items"] if e["involvedObject"]["name"] == job]
        matching_events = [dict(event) for event in job_events if event["reason"] == reason]
        return sorted(
            matching_events, key=lambda event: str(event["metadata"]["creationTimestamp"])
        )

    def log(self, pod: str, container: str = "main") -> str:
        """Returns the output of a container; "" if it cannot be read."""
        path = request.path_of(PODS, self.name, pod)
        log_request = Request("GET", f"{path}/log", (("container", container),))
        try:
            return self.environment.api.send(log_request).decode()
        except KubeError:
            return ""

    def wait_running(self, job: str, count: int, within_s: float) -> None:
        """Waits until exactly `count` trainers run."""
        condition = f"{count} trainers of {job} run"
        until(condition, lambda: self.running(job), lambda n: n == count, within_s)

    def wait_services(self, count: int, within_s: float) -> float:
        """Waits until exactly `count` services run; returns the seconds it took."""
        begun_s = clock.monotonic_s()
        condition = f"{count} services run"
        until(condition, self.services_running, lambda n: n == count, within_s)
        return clock.monotonic_s() - begun_s

    def wait_condition(self, job: str, kind: str, within_s: float) -> str:
        """Waits until a condition is true; returns its reason."""

        def reasons() -> dict[str, str]:
            conditions = self.job(job).status.conditions
            return {c.type: c.reason for c in conditions if c.status == "True"}

        return until(
            f"{job} is {kind}", reasons, lambda true_conditions: kind in true_conditions, within_s
        )[kind]

    def wait_exact(self, job: str, within_s: float = 30.0) -> Job:
        """Waits until the Job has no faults (see `faults`); returns it."""
        until(f"{job} is exact", lambda: self.faults(job), lambda faults: not faults, within_s)
        return self.job(job)

    def faults(self, job: str) -> list[str]:
        """Inconsistencies between a managed Job's accounting, status and trainers; empty if none.

        Checked: the reconciler has written its status; no id was used twice; every assigned id is open
        or counted once; the open ids are those of the existing trainers; the status counts exactly these.
        """
        stored_job = self.job(job)
        accounting, status = trainer_accounting.parse(stored_job.accounting_text), stored_job.status
        ever = [pod for pod in self.environment.pods.ever(self.name) if pod.job == job and pod.role]
        ids = [pod.trainer_id for pod in ever]
        live = {pod.trainer_id for pod in self.trainers(job)}
        counted = (
            accounting.succeeded + accounting.failed + accounting.disrupted + accounting.released
        )
        wrong = {
            "the reconciler has not met it": not (status.start_s or status.conditions),
            f"ids used twice: {sorted(ids)}": len(ids) != len(set(ids)),
            f"created without an entry in the accounting: {ids}": not set(ids)
            <= set(range(accounting.next_id)),
            f"accounting does not add up: {accounting}": accounting.next_id
            != len(accounting.open) + counted,
            f"open {sorted(accounting.open)}, existing {sorted(live)}": accounting.open != live,
            f"{status} for {len(live)} trainers": status.active != len(live),
            f"{status} for {accounting}": (status.failed, status.succeeded)
            != (accounting.failed, accounting.succeeded),
            f"orphans of {job}": any(pod.owner_uid != stored_job.uid for pod in self.trainers(job)),
        }
        return [text for text, is_so in wrong.items() if is_so]

    def clean(self) -> None:
        """Deletes everything in the namespace; waits until no pod is left."""
        for kind in (JOBS, DEPLOYMENTS):
            for item in self.environment.send(request.list_page(kind, self.name))["items"]:
                name = item["metadata"]["name"]
                with contextlib.suppress(NotFound):
                    self.environment.send(request.delete(kind, self.name, name))
        pods = self.environment.pods
        until(
            f"{self.name} is empty",
            lambda: sorted(pod.name for pod in pods.now(self.name)),
            lambda pod_names: not pod_names,
            _CLEAN_S,
        )
        self.environment.send(request.delete(NAMESPACES, None, self.name))


@contextmanager
def isolated_namespace(environment: Environment, name: str) -> Iterator[IsolatedNamespace]:
    """Creates a namespace, and cleans up at the end: deletes it and restarts killed components."""
    environment.send(request.create(NAMESPACES, None, {"metadata": {"name": name}}))
    until("it may have pods", lambda: has_account(environment.api, name), bool, _START_S)
    namespace = IsolatedNamespace(environment, name)
    try:
        yield namespace
    finally:
        environment.restore()
        namespace.clean()


def readiness(url: str) -> dict[str, Any]:
    """Returns a component's answer at /readyz, as a kubelet asks for it.

    Args:
        url: Of its probes.

    Raises:
        OSError: nothing listens there.
    """
    connection = HTTPConnection(urlsplit(url).netloc, timeout=_PROBE_S)
    with contextlib.closing(connection):
        connection.request("GET", "/readyz")
        answer: dict[str, Any] = orjson.loads(connection.getresponse().read())
        return answer


def processes_of(directory: Path) -> list[str]:
    """Command lines of processes that name a directory, of the cluster and of EDL."""
    command_lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(directory) in line:
                command_lines.append(line)
    return command_lines


def _registration(environment: Environment) -> str:
    """What EDL has learned of the extender's entries, "" before it knows."""
    get = request.get(CONFIGMAPS, SYSTEM_NAMESPACE, SCHEDULING_CONFIGMAP)
    try:
        return str(environment.send(get)["data"]["extender"])
    except NotFound:
        return ""


def has_account(api: Client, namespace: str) -> bool:
    """Returns whether pods may be created in a new namespace."""
    try:
        api.send(request.get(SERVICE_ACCOUNTS, namespace, "default"))
    except KubeError:
        return False
    return True
