"""Sizes, processes, environment, and programs of the user's in place of EDL's."""

import json
from collections.abc import Mapping
from typing import Any

import jsonpatch
import pytest

from policy.admission import job_settings, role_templates, sidecar
from policy.admission.frameworks import RolePod, variables
from policy.admission.mutation import check_job, pod_patch
from policy.cluster.snapshot import Job, ServerSpec
from policy.document.model import Policy
from policy.errors import JobError
from policy.names import (
    ANNOTATION_ENVIRONMENT,
    ANNOTATION_MASTER,
    ANNOTATION_MASTER_CPU,
    ANNOTATION_MASTER_MEMORY,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_MASTER_TEMPLATE,
    ANNOTATION_MAX,
    ANNOTATION_MIN,
    ANNOTATION_PROCESSES,
    ANNOTATION_SERVER_CPU,
    ANNOTATION_SERVER_TEMPLATE,
    ANNOTATION_SERVERS,
    ANNOTATION_SIZES,
    LABEL_JOB,
    LABEL_MASTER,
    LABEL_SERVER,
    Role,
)
from policy.planning import sizes
from policy.priority_classes import EDL_CLASSES
from tests.support import builders
from tests.support.builders import job_view

PROGRAM: dict[str, Any] = {
    "name": "own",
    "image": "example/own:1",
    "ports": [{"containerPort": 7164}],
    "resources": {"requests": {"cpu": "2", "memory": "1Gi"}},
}


def _text(spec: Mapping[str, Any] | None = None, **container: Any) -> str:
    return json.dumps({"spec": spec if spec is not None else {"containers": [PROGRAM | container]}})


def _job(**fields: Any) -> Job:
    return Job("ml", "net", "uid-net", 2, 8, builders.shape(1), **fields)


REFUSED: list[tuple[dict[str, str], str]] = [
    ({ANNOTATION_SIZES: "1,two"}, "'two': write a whole number"),
    ({ANNOTATION_SIZES: ""}, "write a whole number"),
    ({ANNOTATION_SIZES: ",".join(["3"] * 200)}, "more than 100 numbers"),
    ({ANNOTATION_PROCESSES: "0"}, "from 1 to 128"),
    ({ANNOTATION_ENVIRONMENT: "padle"}, "did you mean paddle?"),
    ({ANNOTATION_ENVIRONMENT: "torch"}, "needs a master"),
    ({ANNOTATION_MASTER_CPU: "1", ANNOTATION_MASTER: "false"}, "needs a master"),
    ({ANNOTATION_MASTER_CPU: "1Mi?"}, "is not a quantity"),
    ({ANNOTATION_MASTER_MEMORY: "8Mi"}, "at least 64Mi"),
    ({ANNOTATION_MASTER_TEMPLATE: "{"}, "is not JSON"),
    ({ANNOTATION_MASTER_TEMPLATE: "[]"}, "write a pod template"),
    ({ANNOTATION_MASTER_TEMPLATE: _text()}, "needs a master"),
    ({ANNOTATION_MASTER_TEMPLATE: '"' + "x" * 40_000 + '"'}, "more than 32768 bytes"),
    (
        {ANNOTATION_MASTER_TEMPLATE: _text({"containers": [PROGRAM], "nodeSelector": {}})},
        "spec.nodeSelector is not read: the master is a container in the pod of a trainer",
    ),
    ({ANNOTATION_MASTER_TEMPLATE: _text({"containers": [PROGRAM] * 2})}, "write one container"),
    (
        {ANNOTATION_MASTER_TEMPLATE: _text({"containers": [PROGRAM], "resourceClaims": [{}]})},
        "spec.resourceClaims: EDL does not count the devices of claims",
    ),
    (
        {ANNOTATION_MASTER_TEMPLATE: '{"spec": {}, "metadata": {}}'},
        "metadata is not read: the master",
    ),
    (
        {
            ANNOTATION_MASTER: "true",
            ANNOTATION_MASTER_TEMPLATE: _text(),
            ANNOTATION_MASTER_STEPS: "9",
        },
        "leave one of them out",
    ),
    (
        {
            ANNOTATION_MASTER: "true",
            ANNOTATION_MASTER_TEMPLATE: _text(),
            ANNOTATION_SERVERS: "2",
        },
        "EDL's parameter servers need EDL's master",
    ),
]


@pytest.mark.parametrize(("annotations", "text"), REFUSED)
def test_what_contradicts_itself_is_refused_by_name(annotations: dict[str, str], text: str) -> None:
    """Each with what would be right, in one line."""
    with pytest.raises(JobError) as refused:
        job_settings.parse({ANNOTATION_MIN: "1", ANNOTATION_MAX: "2", **annotations})

    assert text in str(refused.value)
    assert "\n" not in str(refused.value)


REFUSED_SERVERS: list[tuple[str, str]] = [
    ('{"spec": {}, "metdata": {}}', "metdata is not read (did you mean metadata?)"),
    (_text({"containers": []}), "containers is empty"),
    (_text({"containers": [PROGRAM], "resourceClaims": [{}]}), "the devices of claims"),
    (_text({"containers": [{"image": "a"}]}), "containers[0].name is missing"),
    (_text(image=""), "containers[0].image is missing"),
    (_text(name="edl-pserver"), "give yours another name"),
    (_text(ports=[]), "has no containerPort"),
    (_text(ports=[{"containerPort": "http"}]), "containerPort: write a number from 1 to 65535"),
    (_text(ports=[{"name": "http"}]), "ports[0].containerPort is missing"),
    (_text(imge="a"), "containers[0].imge is not read (did you mean image?)"),
    (_text(resources={"requests": {"cpu": "250Mi?"}}), "resources.requests: cpu"),
    (_text(resources={"requests": {"cpu": "-100"}}), "requests: cpu is negative: write 0 or more"),
    (_text(resources={"limits": {"memory": "-1Gi"}}), "limits: memory is negative"),
    (_text({"containers": [PROGRAM], "volums": []}), "did you mean volumes?"),
    (_text({"containers": [PROGRAM], "restartPolicy": "Never"}), "leave it out"),
    (_text({"volumes": []}), "places EDL's own servers"),
    (
        _text({"containers": [PROGRAM], "initContainers": [{"name": "a"}]}),
        "initContainers[0].image",
    ),
    ('{"spec": {}, "metadata": 5}', ": metadata: write an object"),
    ('{"spec": {}, "metadata": {"labels": {"a": 5}}}', "metadata.labels.a: write a text"),
    ('{"spec": {"affinity": ' + '{"a":' * 300 + "5" + "}" * 302, "Recursion limit"),
    (_text({"nodeSelector": "gpu"}), "spec.nodeSelector: write an object"),
    (_text({"nodeSelector": {str(n): "" for n in range(200)}}), "200 entries"),
    (_text({"tolerations": [{"key": 5}]}), "spec.tolerations[0].key: write a text"),
    (_text({"tolerations": ["all"]}), "spec.tolerations[0]: write an object"),
    (_text({"affinity": {"nodeAffinity": 5}}), "spec.affinity.nodeAffinity: write an object"),
    (_text(env="A=1"), "spec.containers[0].env: write a list"),
    (_text(env=[{"value": "1"}]), "spec.containers[0].env[0].name is missing"),
    (_text(env=[{"name": []}]), "env[0].name: write a text"),
    (_text(resources="2"), "spec.containers[0].resources: write an object"),
    (_text(resources={"requests": ["2"]}), "resources.requests: write an object"),
    (_text({"containers": [PROGRAM], "initContainers": 5}), "spec.initContainers: write a list"),
    (_text({"containers": [PROGRAM], "volumes": ["a"]}), "spec.volumes[0]: write an object"),
    (
        _text({"containers": [PROGRAM], "terminationGracePeriodSeconds": "30"}),
        "terminationGracePeriodSeconds: write a whole number",
    ),
]


@pytest.mark.parametrize(("template", "text"), REFUSED_SERVERS)
def test_a_template_of_servers_is_checked_field_by_field(template: str, text: str) -> None:
    """The API server sees it only when the first pod is created: that would be too late."""
    with pytest.raises(JobError) as refused:
        job_settings.servers({ANNOTATION_SERVERS: "2", ANNOTATION_SERVER_TEMPLATE: template})

    assert str(refused.value).startswith(ANNOTATION_SERVER_TEMPLATE)
    assert text in str(refused.value)


def test_servers_with_a_program_of_their_own_need_no_master() -> None:
    """Their requests are those of the template, and amounts for EDL's are refused."""
    annotations = {ANNOTATION_SERVERS: "3", ANNOTATION_SERVER_TEMPLATE: _text()}
    spec = job_settings.servers(annotations)

    assert spec is not None
    assert (spec.count, spec.ports, spec.claim) == (3, (7164,), "")
    with pytest.raises(JobError, match="has your own program: write it there"):
        job_settings.servers({**annotations, ANNOTATION_SERVER_CPU: "1"})


def test_a_template_without_containers_places_edls_own_servers() -> None:
    """They need EDL's master, as ever."""
    text = _text({"nodeSelector": {"disk": "ssd"}})
    annotations = {ANNOTATION_SERVERS: "2", ANNOTATION_SERVER_TEMPLATE: text}
    spec = job_settings.servers({**annotations, ANNOTATION_MASTER: "true"})

    assert spec is not None
    assert (spec.ports, json.loads(spec.template_json)) == ((), json.loads(text))
    with pytest.raises(JobError, match="needs a master"):
        job_settings.servers(annotations)


def test_the_ports_of_a_template_are_those_of_its_first_container() -> None:
    """Without containers it has none."""
    assert role_templates.ports(json.loads(_text())) == (7164,)
    assert role_templates.ports({"spec": {}}) == ()


def test_a_job_allows_the_sizes_that_it_names() -> None:
    """And its minimum; where the policy restricts sizes too, those that both allow."""
    job = _job(sizes=(1, 4, 6, 8, 90))
    policy = Policy.model_validate({"sizes": [{"powersOfTwo": True}]})

    assert job_settings.sizes({ANNOTATION_SIZES: "8, 4,4"}) == (4, 8)
    assert [sizes.next_size(Policy(), job, n) for n in (2, 4, 6, 8)] == [4, 6, 8, 8]
    assert [sizes.floor_size(Policy(), job, n) for n in (2, 3, 5, 7, 9)] == [2, 2, 4, 6, 8]
    assert [sizes.next_size(policy, job, n) for n in (2, 4)] == [4, 8]


def test_a_master_gets_what_its_job_asks_for() -> None:
    """Its limits grow with it, and it counts with it in the plan."""
    annotations = {ANNOTATION_MASTER_CPU: "2", ANNOTATION_MASTER_MEMORY: "1Gi"}
    labels = {LABEL_JOB: "net", LABEL_MASTER: "true"}
    container = {"name": "trainer", "resources": {"limits": {"cpu": "1"}}}
    pod = {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {"containers": [container]},
    }
    operations = pod_patch(pod, "ml", Policy(), EDL_CLASSES, "edl:1").operations
    (added,) = jsonpatch.apply_patch(pod, operations)["spec"]["initContainers"]

    assert added["resources"] == {
        "requests": {"cpu": "2", "memory": "1Gi"},
        "limits": {"cpu": "2", "memory": "1Gi"},
    }
    requests = job_settings.master_requests({ANNOTATION_MASTER: "true", **annotations})
    assert requests == {"cpu": 2000, "memory": builders.GI}
    assert sidecar.requests_of(_job(master_requests=requests)) == requests
    assert sidecar.requests_of(_job()) == sidecar.REQUESTS


@pytest.mark.parametrize("label", [LABEL_MASTER, LABEL_SERVER])
def test_admission_adds_nothing_to_programs_of_the_users(label: str) -> None:
    """They have an image, so EDL needs none."""
    containers = [{"name": "edl-master", "image": "own"}]
    spec = {"containers": [PROGRAM], "initContainers": containers}
    pod = {"metadata": {"labels": {LABEL_JOB: "net", label: "true"}}, "spec": spec}
    mutation = pod_patch(pod, "ml", Policy(), EDL_CLASSES, "")

    assert mutation.warnings == ()
    patched = jsonpatch.apply_patch(pod, mutation.operations)["spec"]
    assert (patched["containers"], patched["initContainers"]) == ([PROGRAM], containers)


def _names(job: Job, role_pod: RolePod) -> dict[str, str]:
    return {str(v["name"]): str(v.get("value")) for v in variables(job, role_pod)}


def test_a_job_that_names_nothing_gets_no_variables() -> None:
    """Its pods are as they always were."""
    assert variables(_job(), RolePod(Role.TRAINER, 3)) == []


def test_variables_begin_with_what_the_pod_knows_of_itself() -> None:
    """Later ones may refer to them."""
    known = [
        (variable["name"], variable["valueFrom"])
        for variable in variables(_job(environment=("paddle",)), RolePod(Role.TRAINER))[:2]
    ]
    assert known == [
        ("POD_IP", {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}),
        ("NAMESPACE", {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}),
    ]


def test_paddles_programs_find_their_peers() -> None:
    """By the names of the original, for each role; the pod's own address is referred to."""
    spec = ServerSpec(2, builders.shape(1), ports=(7164,), template_json=b"{}")
    job = _job(servers=spec, environment=("paddle",), processes=4)
    role_pod = RolePod(Role.TRAINER, 3, servers=("10.0.0.1:7164", "10.0.0.2:7164"))
    trainer = _names(job, role_pod)
    server = _names(job, RolePod(Role.PSERVER, 1, "10.0.0.9:8080", role_pod.servers))

    assert next(iter(trainer)) == "POD_IP"
    assert (trainer["PADDLE_TRAINER_ID"], trainer["TRAINERS"], trainer["PSERVERS"]) == (
        *("3", "2", "2"),
    )
    assert trainer["PADDLE_PSERVERS_IP_PORT_LIST"] == "10.0.0.1:7164,10.0.0.2:7164"
    assert trainer["PADDLE_INIT_PSERVERS"] == "10.0.0.1,10.0.0.2"
    assert (trainer["PADDLE_NNODES"], trainer["PADDLE_NPROC_PER_NODE"]) == ("2:8", "4")
    assert trainer["PADDLE_CURRENT_ENDPOINT"] == "$(POD_IP):7164"
    assert (trainer["EDL_ROLE"], trainer["EDL_INDEX"]) == ("trainer", "3")
    assert (server["TRAINING_ROLE"], server["PADDLE_PSERVER_ID"]) == ("PSERVER", "1")
    assert (server["PADDLE_MASTER"], server["MASTER_IP"]) == ("10.0.0.9:8080", "10.0.0.9")
    assert "PADDLE_TRAINER_ID" not in server
    assert "PADDLE_MASTER" not in trainer


def test_a_master_of_a_job_without_servers_is_told_who_it_is() -> None:
    """It has no number of trainers or servers, and port 7164."""
    master = _names(_job(environment=("paddle",)), RolePod(Role.MASTER))

    assert (master["TRAINING_ROLE"], master["PSERVERS"], master["PADDLE_PORT"]) == (
        *("MASTER", "0", "7164"),
    )
    assert not {"PADDLE_TRAINER_ID", "PADDLE_PSERVER_ID", "PADDLE_INIT_PSERVERS"} & master.keys()


def test_torchruns_agents_meet_at_the_master() -> None:
    """At its host, where EDL's master is; at the user's store, which is not one of them."""
    role_pod = RolePod(Role.TRAINER, 3, "[fd00::1]:8790")
    job = _job(master=True, environment=("torch",), processes=8)
    at_host = _names(job, RolePod(Role.TRAINER, 0, role_pod.master, hosts_master=True))
    own = _names(
        _job(master=True, environment=("torch",), master_template_json=b"{}"),
        RolePod(Role.TRAINER, 3, "10.0.0.9:29400", hosts_master=True),
    )

    assert _names(job, role_pod)["PET_RDZV_CONF"] == "is_host=0"
    assert at_host["PET_RDZV_CONF"] == "is_host=1"
    assert at_host["PET_RDZV_ENDPOINT"] == "[fd00::1]:29400"
    assert (at_host["MASTER_ADDR"], at_host["MASTER_PORT"]) == ("fd00::1", "29400")
    assert (at_host["PET_NNODES"], at_host["PET_NPROC_PER_NODE"]) == ("2:8", "8")
    assert int(at_host["PET_MAX_RESTARTS"]) > 100_000
    assert (own["PET_RDZV_ENDPOINT"], own["PET_RDZV_CONF"]) == ("10.0.0.9:29400", "is_host=0")
    assert not {"RANK", "WORLD_SIZE"} & at_host.keys()
    assert not [name for name in _names(job, RolePod(Role.PSERVER)) if name.startswith("PET_")]


def test_a_job_may_say_all_of_it() -> None:
    """Programs of its own for both roles, sizes, processes and two frameworks."""
    annotations = {
        ANNOTATION_MIN: "2",
        ANNOTATION_MAX: "8",
        ANNOTATION_MASTER: "true",
        ANNOTATION_MASTER_TEMPLATE: _text(),
        ANNOTATION_SERVERS: "2",
        ANNOTATION_SERVER_TEMPLATE: _text(),
        ANNOTATION_SIZES: "2,4,8",
        ANNOTATION_PROCESSES: "8",
        ANNOTATION_ENVIRONMENT: "paddle, torch",
    }
    spec = {"template": {"spec": {"hostNetwork": True, "containers": [{"name": "t"}]}}}

    settings = check_job(job_view(annotations, spec))

    assert (settings.min_trainers, settings.max_trainers) == (2, 8)
    assert job_settings.environment(annotations) == ("paddle", "torch")
    assert job_settings.environment({ANNOTATION_ENVIRONMENT: "paddle"}) == ("paddle",)
