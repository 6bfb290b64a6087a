"""Programs of the user's as parameter servers and master, from a cluster in memory."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from kube import elastic_spec, request
from kube.request import SECRETS, SERVICES
from policy.cluster.snapshot import Job, Phase
from policy.names import (
    ANNOTATION_ENVIRONMENT,
    ANNOTATION_MASTER_TEMPLATE,
    ANNOTATION_MAX,
    ANNOTATION_MIN,
    ANNOTATION_SERVER_TEMPLATE,
    ANNOTATION_SERVERS,
    LABEL_MASTER,
)
from reconciler.manifests import master as master_manifests
from reconciler.manifests import server as server_manifests
from tests.reconciler import objects
from tests.reconciler.world import Process, World, posted
from tests.support.builders import job_view

_SERVER_PORT = 7164


@pytest.fixture
def world() -> World:
    """Two nodes of 16 CPU; trainers take 5."""
    return World(16, 16)


def _template(port: int, cpu: str = "4", **spec: Any) -> str:
    resources = {"requests": {"cpu": cpu}}
    ports = [{"containerPort": port}, {"containerPort": port + 1}]
    container = {"name": "own", "image": "own:1", "ports": ports, "resources": resources}
    container["env"] = [{"name": "PADDLE_PORT", "value": "9"}, {"name": "MINE", "value": "1"}]
    template: dict[str, Any] = {"spec": {"containers": [container], **spec}}
    if port == _SERVER_PORT:
        labels = {"app": "own", "edl.training/role": "trainer"}
        template["metadata"] = {"labels": labels, "annotations": {"team": "a"}}
    return orjson.dumps(template).decode()


def _submit(world: World, *, master: bool = False, **spec: Any) -> None:
    annotations = {
        ANNOTATION_SERVERS: "2",
        ANNOTATION_SERVER_TEMPLATE: _template(_SERVER_PORT, **spec),
        ANNOTATION_ENVIRONMENT: "paddle",
    }
    if master:
        annotations[ANNOTATION_MASTER_TEMPLATE] = _template(8080, volumes=[{"name": "data"}])
    world.add_job("net", 2, 2, master=master, annotations=annotations)


def _variables(container: dict[str, Any]) -> dict[str, str]:
    return {v["name"]: v.get("value", "") for v in container["env"]}


def test_servers_run_the_users_program_behind_stable_addresses(
    world: World, process: Process
) -> None:
    """Each has a Service with its ports; trainers know the addresses, and no master is needed."""
    _submit(world)
    process.run(5)
    services = {s["metadata"]["name"]: s["spec"] for s in world.api.all(SERVICES)}
    pods = posted(world, "/pods")
    server, trainer = pods[0], pods[-1]
    (container,) = server["spec"]["containers"]
    addresses = ",".join(f"{services[f'net-ps-{i}']['clusterIP']}:7164" for i in range(2))

    assert sorted(services) == ["net-ps-0", "net-ps-1"]
    assert [port["port"] for port in services["net-ps-0"]["ports"]] == [7164, 7165]
    assert [pod.ready for pod in world.servers("net")] == [True, True]
    assert (container["image"], server["spec"]["restartPolicy"]) == ("own:1", "Always")
    assert server["spec"]["priorityClassName"] == "edl-support"
    assert server["metadata"]["labels"]["app"] == "own"
    assert server["metadata"]["labels"]["edl.training/role"] == "pserver"
    assert server["metadata"]["annotations"]["team"] == "a"
    assert _variables(container)["PADDLE_PORT"] == "9"
    assert _variables(container)["PADDLE_PSERVERS_IP_PORT_LIST"] == addresses
    environment = _variables(trainer["spec"]["containers"][0])
    assert environment["PADDLE_PSERVERS_IP_PORT_LIST"] == addresses
    assert environment["PADDLE_TRAINER_ID"] in ("0", "1")
    assert not [s for s in world.api.all(SECRETS) if s["metadata"]["name"].startswith("net")]


def test_their_requests_count_in_the_plan(world: World, process: Process) -> None:
    """Two servers of 12 CPU leave no room for two trainers, so nothing starts."""
    _submit(world, cpu="12")
    process.run(5)

    assert (world.pods("net"), world.servers("net")) == ([], [])


def test_servers_go_where_their_template_says(world: World, process: Process) -> None:
    """Trainers may go elsewhere."""
    label = {"metadata": {"labels": {"disk": "ssd"}}}
    world.ask(request.merge_patch(request.NODES, None, "n1", label))
    _submit(world, nodeSelector={"disk": "ssd"})
    process.run(5)

    assert {pod.node for pod in world.servers("net")} == {"n1"}
    assert len(world.running("net")) == 2


def test_the_users_master_runs_beside_one_trainer(world: World, process: Process) -> None:
    """Behind a Service; EDL asks it nothing, and the job ends as its trainers do."""
    _submit(world, master=True)
    process.run(5)
    hosts = [
        pod
        for pod in posted(world, "/pods")
        if pod["metadata"]["labels"].get(LABEL_MASTER) == "true"
    ]
    (host,) = hosts
    (sidecar,) = host["spec"]["initContainers"]
    services = {s["metadata"]["name"]: s["spec"] for s in world.api.all(SERVICES)}
    address = f"{services['net-edl-master']['clusterIP']}:8080"

    assert (sidecar["name"], sidecar["image"], sidecar["restartPolicy"]) == (
        *("edl-master", "own:1", "Always"),
    )
    assert host["spec"]["volumes"] == [{"name": "data"}]
    assert _variables(sidecar)["EDL_ROLE"] == "master"
    assert _variables(host["spec"]["containers"][0])["PADDLE_MASTER"] == address
    assert "EDL_MASTER" not in _variables(host["spec"]["containers"][0])
    for pod in world.pods("net"):
        world.end(pod, Phase.SUCCEEDED)
    process.run(5)
    assert world.job("net").finished


def test_another_trainer_hosts_the_users_master_when_its_host_is_lost(
    world: World, process: Process
) -> None:
    """As with EDL's."""
    _submit(world, master=True)
    process.run(5)
    (host,) = [pod for pod in world.pods("net") if pod.master]
    world.ask(request.delete(request.PODS, "ml", host.name))
    process.run(5)
    (successor,) = [pod for pod in world.running("net") if pod.master]

    assert successor.name != host.name


def test_the_store_of_torch_has_a_port_beside_edls_master() -> None:
    """Behind the same Service, whose first port stays the master's."""
    job = Job("ml", "net", "u", 1, 2, {}, master=True, environment=("torch",))
    ports = master_manifests.service(job, "net-edl-master")["spec"]["ports"]

    assert [(port["name"], port["port"]) for port in ports] == [
        ("edl-master", 8790),
        ("torch-store", 29400),
    ]


def test_programs_that_choose_their_ports_reach_each_other() -> None:
    """Within the job: its NetworkPolicy names ports only where all of them are EDL's."""
    job = Job("ml", "net", "u", 1, 2, {}, master=True)
    own = replace(job, environment=("torch",))
    among = [
        master_manifests.network_policy(each, "net", "edl-system")["spec"]["ingress"][0]
        for each in (job, own)
    ]

    assert among[0]["ports"] == [{"port": 8790, "endPort": 8792, "protocol": "TCP"}]
    assert among[1] == {"from": among[0]["from"]}


_WRONG: tuple[Any, ...] = (None, True, 5, "s", [], [5], ["s"], [None], {}, {"a": 5})


def _variants(value: Any) -> Iterator[Any]:
    """The value with one wrong part, at each place in turn."""
    yield from _WRONG
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            for variant in _variants(part):
                copied = value.copy()
                copied[key] = variant
                yield copied


def test_a_template_that_is_accepted_can_be_read_and_written() -> None:
    """Whatever a field has in place of what belongs there: else the whole Job could not be read."""
    term = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    text = _template(
        _SERVER_PORT,
        affinity={"nodeAffinity": required},
        nodeSelector={"a": "b"},
        tolerations=[{"key": "a"}],
        volumes=[{"name": "data"}],
        terminationGracePeriodSeconds=5,
    )
    pod_template = {"spec": {"restartPolicy": "Never", "containers": objects.containers(1)}}
    job_record = Job("ml", "net", "uid", 1, 2, {"cpu": 1}, environment=("paddle",))
    accepted = 0
    for variant in _variants(orjson.loads(text)):
        annotations = {
            ANNOTATION_MIN: "1",
            ANNOTATION_MAX: "2",
            ANNOTATION_ENVIRONMENT: "paddle",
            ANNOTATION_SERVERS: "1",
            ANNOTATION_SERVER_TEMPLATE: orjson.dumps(variant).decode(),
        }
        read = elastic_spec.read(job_view(annotations, {"template": pod_template}))
        if not read.error:
            accepted += 1
            assert read.settings.servers is not None
            server_manifests.pod(job_record, read.settings.servers, 0, "a", 30, secret="own")  # noqa: S106

    assert accepted > 10
