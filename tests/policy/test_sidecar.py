import re
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube import podspec
from master.settings import MasterSettings
from policy.admission import sidecar
from policy.admission.mutation import NO_IMAGE, Mutation, pod_patch
from policy.admission.views import PodView
from policy.document.model import Policy
from policy.names import (
    ANNOTATION_KEPT_ENVIRONMENT,
    ANNOTATION_MASTER_ADDRESS,
    ANNOTATION_MASTER_HEARTBEAT,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_MASTER_STUCK,
    ANNOTATION_SNAPSHOT,
    ANNOTATION_TOKEN_SECRET,
    LABEL_MASTER,
    MASTER_PORT,
)
from policy.priority_classes import EDL_CLASSES
from tests.webhook.vectors import thing

ADDRESS = "http://10.96.0.7:8790"
IMAGE = "registry.example/edl:1"
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def _trainer(*, carries: bool = False, **spec: Any) -> dict[str, Any]:
    """A trainer of a job that has a master, as the reconciler makes it."""
    pod = thing("pod-create-trainer")
    metadata = pod["metadata"]
    metadata["annotations"] = {ANNOTATION_MASTER_ADDRESS: ADDRESS}
    if carries:
        metadata["labels"] = {**metadata["labels"], LABEL_MASTER: "true"}
    pod["spec"] |= spec
    return pod


def _change(pod: dict[str, Any], image: str = IMAGE) -> tuple[dict[str, Any], Mutation]:
    change = pod_patch(pod, "training", Policy(), EDL_CLASSES, image)
    changed: dict[str, Any] = jsonpatch.JsonPatch(list(change.operations)).apply(pod)
    return changed, change


def _environment(pod: dict[str, Any], place: int = 0) -> dict[str, Any]:
    entries = pod["spec"]["containers"][place]["env"]
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in entries}


def test_a_trainer_is_told_where_its_master_is() -> None:
    """Address, token by reference, its own name and its job's."""
    pod, change = _change(_trainer())

    variables = _environment(pod)
    assert variables["EDL_MASTER"] == ADDRESS
    assert variables["EDL_TRAINER"] == "trainer-3"
    assert variables["EDL_JOB"] == "resnet"
    secret = {"name": "resnet-edl-master", "key": "token"}
    assert variables["EDL_TOKEN"] == {"secretKeyRef": secret}
    assert change.warnings == ()
    assert not PodView.parse(pod).has_master


def test_token_and_snapshot_are_where_the_reconciler_says() -> None:
    """A job's Secret has a suffix after its token was renewed; those of running Jobs keep their name."""
    trainer = _trainer(carries=True)
    names = {ANNOTATION_TOKEN_SECRET: "resnet-edl-master-2", ANNOTATION_SNAPSHOT: "resnet-master"}
    trainer["metadata"]["annotations"] |= names
    pod, _ = _change(trainer)
    (volume,) = [v for v in pod["spec"]["volumes"] if v["name"] == "edl-token"]

    assert _environment(pod)["EDL_TOKEN"]["secretKeyRef"]["name"] == "resnet-edl-master-2"
    assert volume["secret"]["secretName"] == "resnet-edl-master-2"
    command = pod["spec"]["initContainers"][0]["command"]
    assert "--snapshot-configmap=training/resnet-master" in command


def test_a_master_reads_its_token_from_a_file() -> None:
    """No environment of a process of EDL has it: those are inherited, dumped and listed."""
    pod, _ = _change(_trainer(carries=True))
    master = pod["spec"]["initContainers"][0]
    variables = {entry["name"]: entry["value"] for entry in master["env"]}
    (mount,) = [m for m in master["volumeMounts"] if m["name"] == "edl-token"]

    assert variables == {"EDL_JOB": "resnet", "EDL_TOKEN_FILE": f"{mount['mountPath']}/token"}
    assert mount["readOnly"] is True
    mounts = pod["spec"]["containers"][0].get("volumeMounts", [])
    assert "edl-token" not in [mount["name"] for mount in mounts]


def test_a_pod_without_an_id_gets_no_name() -> None:
    """A support pod with the address may call the master under a name of its own."""
    trainer = _trainer()
    del trainer["metadata"]["labels"]["edl.training/trainer-id"]
    pod, _ = _change(trainer)

    assert "EDL_TRAINER" not in _environment(pod)
    assert _environment(pod)["EDL_MASTER"] == ADDRESS


def test_every_container_is_told() -> None:
    """Which of them trains is the user's business."""
    containers = [{"name": "a", "image": "x"}, {"name": "b", "image": "x", "env": []}]
    pod, _ = _change(_trainer(containers=containers))

    assert _environment(pod, 0) == _environment(pod, 1)


def test_what_the_user_set_is_kept_and_said() -> None:
    """In a warning and in an annotation; the other variables are added."""
    containers = [{"name": "main", "image": "x", "env": [{"name": "EDL_TOKEN", "value": "mine"}]}]
    pod, change = _change(_trainer(containers=containers))

    assert _environment(pod)["EDL_TOKEN"] == "mine"  # noqa: S105 - a test's
    assert _environment(pod)["EDL_MASTER"] == ADDRESS
    assert pod["metadata"]["annotations"][ANNOTATION_KEPT_ENVIRONMENT] == "main/EDL_TOKEN"
    assert len(change.warnings) == 1
    assert change.warnings[0].endswith("main/EDL_TOKEN")


def test_the_pod_that_carries_the_master_gets_it_first() -> None:
    """Before the user's init containers, with its journal and its own way to the API server."""
    pod, _ = _change(_trainer(carries=True, initContainers=[{"name": "fetch", "image": "x"}]))

    master, fetch = pod["spec"]["initContainers"]
    assert (master["name"], fetch["name"]) == ("edl-master", "fetch")
    assert (master["image"], master["restartPolicy"]) == (IMAGE, "Always")
    assert master["command"][-1] == "--snapshot-configmap=training/resnet-edl-master"
    mounts = {mount["name"] for mount in master["volumeMounts"]}
    assert mounts <= {volume["name"] for volume in pod["spec"]["volumes"]}
    assert master["securityContext"]["runAsNonRoot"] is True
    assert _environment(pod)["EDL_MASTER"] == ADDRESS


def test_a_master_is_started_as_its_job_says() -> None:
    """The annotations of the pod become flags; nothing said, nothing added."""
    trainer = _trainer(carries=True)
    trainer["metadata"]["annotations"] |= {
        ANNOTATION_MASTER_STEPS: "500",
        ANNOTATION_MASTER_HEARTBEAT: "0.5",
        ANNOTATION_MASTER_STUCK: "900",
    }
    pod, _ = _change(trainer)

    command = pod["spec"]["initContainers"][0]["command"]
    settings = MasterSettings.from_command_line("", command[3:], {})
    assert command[-3:] == ["--max-steps=500", "--heartbeat-seconds=0.5", "--stuck-seconds=900"]
    assert (settings.max_steps, settings.heartbeat_seconds) == (500, 0.5)


def test_a_pod_of_role_master_may_carry_it_without_an_address() -> None:
    """Its label asks for the sidecar; no address, no environment."""
    pod = thing("pod-create-pserver")
    labels = {**pod["metadata"]["labels"], "edl.training/role": "master", LABEL_MASTER: "true"}
    pod["metadata"]["labels"] = labels
    changed, _ = _change(pod)

    assert PodView.parse(changed).has_master
    assert changed["spec"]["containers"][0].get("env") == pod["spec"]["containers"][0].get("env")


@pytest.mark.parametrize("carries", [False, True])
def test_a_changed_pod_is_not_changed_again(carries: bool) -> None:
    """The API server may call twice (reinvocation); a user's variable gives no second warning."""
    containers = [{"name": "main", "image": "x", "env": [{"name": "EDL_JOB", "value": "other"}]}]
    pod, _ = _change(_trainer(carries=carries, containers=containers))
    _, again = _change(pod)

    assert again.operations == ()


def test_without_an_image_there_is_no_master_but_a_warning() -> None:
    """The trainer runs, and a warning explains why it has no master."""
    pod, change = _change(_trainer(carries=True), image="")

    assert not PodView.parse(pod).has_master
    assert change.warnings == (NO_IMAGE,)


def test_pods_without_marks_stay_as_they_were() -> None:
    """A job that asked for no master gets nothing of it."""
    pod, _ = _change(thing("pod-create-trainer"))

    assert "env" not in pod["spec"]["containers"][0]
    assert "initContainers" not in pod["spec"]


def test_own_volumes_are_added_once() -> None:
    """A volume of that name is there already where somebody put a template together by hand."""
    volumes = [{"name": "edl-master", "emptyDir": {}}]
    pod, _ = _change(_trainer(carries=True, volumes=volumes))

    names = [volume["name"] for volume in pod["spec"]["volumes"]]
    assert sorted(names) == ["edl-master", "edl-master-access", "edl-token"]


def test_the_scheduler_counts_what_the_plan_counts() -> None:
    """The sidecar adds exactly the requests that the plan leaves room for."""
    pod, _ = _change(_trainer(carries=True, containers=[{"name": "main", "image": "x"}]))

    requests = dict(podspec.requests(pod["spec"]))
    assert requests == {**sidecar.REQUESTS, "pods": 1}


@pytest.mark.parametrize("name", ["digits", "a" * 52, "a" * 53, "a" * 63, "9-lives", "net.v1"])
def test_names_of_objects_can_name_a_service(name: str) -> None:
    """Whatever the Job is called, and apart for Jobs that differ late."""
    object_name = sidecar.object_name(name)

    assert _DNS_LABEL.fullmatch(object_name)
    assert object_name.endswith("-edl-master")
    assert object_name != sidecar.object_name(name + "b")


def test_plain_names_stay_readable() -> None:
    """`<job>-edl-master` wherever it can be: a label has 63 characters at most."""
    assert sidecar.object_name("digits") == "digits-edl-master"
    assert sidecar.object_name("a" * 52) == "a" * 52 + "-edl-master"


def test_running_jobs_find_the_objects_that_they_have() -> None:
    """Under the name that they had before."""
    assert sidecar.former_object_name("digits") == "digits-master"


def test_no_job_takes_a_well_known_name() -> None:
    """redis-master and mysql-master are names that charts of databases give their Services."""
    assert sidecar.object_name("redis") == "redis-edl-master"


def test_other_names_keep_what_they_can() -> None:
    """Letters and digits, in lower case; a part of the hash keeps them apart."""
    assert sidecar.object_name("Net.v1").startswith("edl-net-v1-")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
_LABELS = {"edl.training/job": "a", LABEL_MASTER: "true", "edl.training/trainer-id": "1"}


@given(containers=_JSON, init=_JSON, volumes=_JSON)
def test_odd_specs_are_no_crash(containers: Any, init: Any, volumes: Any) -> None:
    """Whatever JSON the fields hold, there is an answer."""
    metadata = {"labels": _LABELS, "annotations": {ANNOTATION_MASTER_ADDRESS: ADDRESS}}
    spec = {"containers": containers, "initContainers": init, "volumes": volumes}
    change = pod_patch({"metadata": metadata, "spec": spec}, "ml", Policy(), EDL_CLASSES, IMAGE)

    assert change.role == "trainer"


@pytest.mark.parametrize("metadata", [None, {"labels": [1]}, {"labels": {"a": 1}}])
def test_odd_metadata_is_no_crash(metadata: Any) -> None:
    """Labels that are none ask for nothing."""
    pod = {"metadata": metadata, "spec": None}
    view = PodView.parse(pod)

    assert sidecar.add_variables(view, 30) == ([], [])
    assert not view.has_master


def test_a_master_reaches_the_api_server_as_any_pod_does() -> None:
    """A token that is renewed, the cluster's CA, and the namespace: what Kubernetes itself mounts."""
    pod, _ = _change(_trainer(carries=True, containers=[{"name": "main", "image": "x"}]))

    (access,) = [v for v in pod["spec"]["volumes"] if v["name"] == "edl-master-access"]
    assert access["projected"]["sources"] == [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
            }
        },
    ]


def test_a_master_is_probed_and_bounded() -> None:
    """On the port that trainers call; two minutes to start, and then it has to answer."""
    pod, _ = _change(_trainer(carries=True, containers=[{"name": "main", "image": "x"}]))

    (master,) = pod["spec"]["initContainers"]
    health = {"path": "/healthz", "port": MASTER_PORT}
    assert master["startupProbe"] == {
        "httpGet": health,
        "periodSeconds": 1,
        "failureThreshold": 120,
    }
    assert master["livenessProbe"] == {"httpGet": health, "periodSeconds": 10, "timeoutSeconds": 3}
    assert master["ports"] == [
        {"name": "edl-master", "containerPort": MASTER_PORT, "protocol": "TCP"}
    ]
    assert master["resources"] == {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"memory": "512Mi"},
    }
    assert master["volumeMounts"] == [
        {"name": "edl-master", "mountPath": "/var/lib/edl-master"},
        {
            "name": "edl-master-access",
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            "readOnly": True,
        },
        {"name": "edl-token", "mountPath": "/var/run/secrets/edl", "readOnly": True},
    ]


@pytest.mark.parametrize(
    ("limits", "init_limits", "expected"),
    [
        ({"cpu": "2"}, None, "1"),
        ({"cpu": "2"}, {"cpu": "1"}, "1"),
        ({"cpu": "2"}, {}, None),
        ({"memory": "1Gi"}, None, None),
        ({}, None, None),
    ],
)
def test_a_master_has_a_cpu_limit_where_all_other_containers_have_one(
    limits: dict[str, str], init_limits: dict[str, str] | None, expected: str | None
) -> None:
    """A ResourceQuota on limits.cpu refuses a pod with a container that has none."""
    main = {"name": "main", "resources": {"limits": limits}}
    init = [{"name": "init", "resources": {"limits": init_limits}}]
    more = {} if init_limits is None else {"initContainers": init}
    pod, _ = _change(_trainer(carries=True, containers=[main], **more))
    master = pod["spec"]["initContainers"][0]

    assert master["name"] == "edl-master"
    assert master["resources"]["limits"].get("cpu") == expected
    assert podspec.limits(pod["spec"]).get("cpu") == (3_000 if expected else None)
