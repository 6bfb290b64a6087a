"""Jobs of torch in other systems: what their operators do for them, and what their commands say."""

import json
from typing import Any

import pytest
from edl.errors import EdlError

from tests.sdk.convert.torch_jobs import (
    TORCHRUN,
    converted,
    hyperpod,
    pod_template,
    pytorch_job,
    train_job,
    volcano,
)


@pytest.mark.parametrize(
    ("body", "at"),
    [
        (pytorch_job(pod_template(*TORCHRUN, gpus=8)), "spec.nprocPerNode"),
        (pytorch_job(pod_template(*TORCHRUN, gpus="8"), nprocPerNode="auto"), "spec.nprocPerNode"),
        (pytorch_job(pod_template(*TORCHRUN, gpus=8), nprocPerNode="gpu"), "spec.nprocPerNode"),
        (hyperpod(pod_template(*TORCHRUN, gpus=8)), "spec.nprocPerNode"),
        (
            train_job(
                trainer={
                    "image": "torch",
                    "command": ["torchrun", "train.py"],
                    "resourcesPerNode": {"requests": {"nvidia.com/gpu": 8}},
                }
            ),
            "spec.trainer.numProcPerNode",
        ),
    ],
)
def test_automatic_processes_are_one_for_each_gpu(body: dict[str, Any], at: str) -> None:
    """As torchrun counts them, and as the operators write where the file says nothing."""
    training_job, hints, _ = converted(body)

    assert training_job["spec"]["trainer"]["processes"] == 8
    assert any(f"{at}: auto is 8 here" in line for line in hints)


def test_the_program_is_the_container_of_its_name_behind_sidecars_too() -> None:
    """The operator demands the name and no place; store, processes and checks are the program's."""
    template = pod_template(*TORCHRUN, gpus=8)
    sidecar = {"name": "fluentd", "image": "fluent/fluentd"}
    template["spec"]["containers"].insert(0, sidecar)
    training_job, _, losses = converted(pytorch_job(template))
    spec = training_job["spec"]

    assert spec["master"]["template"]["spec"]["containers"][0]["image"] == "torch"
    assert spec["trainer"]["processes"] == 8
    assert spec["trainer"]["template"]["spec"]["containers"][1] == sidecar
    assert losses == []


@pytest.mark.parametrize("gpus", [None, 0, 1, "x", "1000"])
def test_a_machine_of_unknown_size_gets_no_number_of_processes(gpus: object) -> None:
    """Without GPUs torchrun would count CPUs, and says so; one GPU is one process."""
    training_job, hints, _ = converted(pytorch_job(pod_template(*TORCHRUN, gpus=gpus)))

    assert "processes" not in training_job["spec"]["trainer"]
    is_named = any("auto depends on the machine" in line for line in hints)
    assert is_named is (gpus in (None, 0, "x"))


def test_programs_without_torchrun_lose_their_ranks() -> None:
    """The operator sets RANK and WORLD_SIZE where there is no elasticPolicy."""
    words = "RANK and WORLD_SIZE are not set, which"
    for body, is_lost in (
        (pytorch_job(pod_template("python", "train.py")), True),
        (pytorch_job(pod_template()), True),
        (pytorch_job(pod_template("python", "-m", "torch.distributed.run", "train.py")), False),
        (pytorch_job(pod_template("sh", "-c", "exec torchrun train.py")), False),
        (pytorch_job(pod_template(), elasticPolicy={"minReplicas": 1, "maxReplicas": 2}), False),
    ):
        _, _, losses = converted(body)
        assert any(words in line for line in losses) is is_lost


@pytest.mark.parametrize(
    ("flag", "lost"),
    [
        ("--nnodes=4", True),
        ("--nnodes=$NUM_NODES", True),
        ("--nnodes 1:4", True),
        ("--nnodes=2", False),
        ("--nnodes=2:2", False),
        ("--nnodes=$PET_NNODES", False),
        ("--nproc_per_node=4", False),
        ("--rdzv_backend=c10d", False),
        ("--rdzv-backend=etcd", True),
        ("--rdzv_endpoint=etcd:2379", True),
        ("--rdzv-endpoint $(PET_RDZV_ENDPOINT)", False),
        ("--node_rank=$RANK", True),
        ("--master_addr=$MASTER_ADDR", True),
    ],
)
def test_flags_that_torchrun_takes_in_place_of_its_variables_are_named(
    flag: str, lost: bool
) -> None:
    """In a list of words and in a script; those that say the same are right."""
    script = pod_template("sh", "-c", f"torchrun {flag} train.py")
    words = pod_template("torchrun", *flag.split(), "train.py")
    for template in (script, words):
        _, _, losses = converted(pytorch_job(template))
        named = [line for line in losses if flag.replace("=", " ").split()[0] in line]
        assert bool(named) is lost


def test_a_number_of_nodes_in_the_command_is_lost_where_the_job_becomes_elastic() -> None:
    """It is right for the file's own fixed number, and not for other bounds."""
    body = pytorch_job(pod_template("torchrun", "--nnodes=2", "train.py"))

    assert converted(body)[2] == []
    (line,) = converted(body, most=8)[2]
    assert "--nnodes=2" in line
    assert line.startswith("line 1: spec.pytorchReplicaSpecs.Worker.template: ")


def test_hyperpods_launcher_and_spare_pods_are_lost() -> None:
    """The launcher waits for the agent of its operator."""
    _, _, losses = converted(hyperpod(pod_template("hyperpodrun", "train.py"), spares=1))

    assert any("hyperpodrun" in line for line in losses)
    assert any("spec.replicaSpecs.0.spares: " in line for line in losses)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("Never", {"backoffLimit": 0}),
        ("OnFailure", {"backoffLimit": 9}),
        ("Always", {"backoffLimit": 9}),
        (
            "ExitCode",
            {
                "backoffLimit": 9,
                "podFailurePolicy": {
                    "rules": [
                        {
                            "action": "FailJob",
                            "onExitCodes": {"operator": "In", "values": list(range(1, 128))},
                        }
                    ]
                },
            },
        ),
    ],
)
def test_what_a_failed_pod_means_is_kept(policy: str, expected: dict[str, Any]) -> None:
    """Never: it ends the job. ExitCode: codes below 128 do, and pods are not restarted in place."""
    template = pod_template(*TORCHRUN)
    template["spec"]["restartPolicy"] = "OnFailure"
    role = {"restartPolicy": policy}
    training_job, hints, _ = converted(pytorch_job(template, role, runPolicy={"backoffLimit": 9}))
    spec = training_job["spec"]

    assert {name: spec[name] for name in ("backoffLimit", "podFailurePolicy") if name in spec} == (
        expected
    )
    assert any("Worker.restartPolicy: " in line for line in hints)
    if policy == "ExitCode":
        assert spec["trainer"]["template"]["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("policy", "is_lost"),
    [
        ({"cleanPodPolicy": "None"}, False),
        ({"cleanPodPolicy": "Running"}, False),
        ({"cleanPodPolicy": "All"}, True),
        ({"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 0}, False),
    ],
)
def test_clean_up_of_pods_is_named(policy: dict[str, Any], is_lost: bool) -> None:
    """Pods that have ended stay with their job; without a time to live, All means something else."""
    _, hints, losses = converted(pytorch_job(pod_template(*TORCHRUN), runPolicy=policy))
    named = {
        kind: any("spec.runPolicy.cleanPodPolicy: " in line for line in lines)
        for kind, lines in (("note", hints), ("lost", losses))
    }

    assert named == {"note": not is_lost, "lost": is_lost}


def test_an_unknown_clean_up_is_refused() -> None:
    """With the values that exist."""
    with pytest.raises(EdlError, match=r"cleanPodPolicy is 'none': write None, Running or All"):
        converted(pytorch_job(pod_template(*TORCHRUN), runPolicy={"cleanPodPolicy": "none"}))


@pytest.mark.parametrize(
    "body",
    [
        pytorch_job(pod_template(*TORCHRUN)),
        hyperpod(pod_template(*TORCHRUN)),
        train_job(trainer={"image": "torch", "numNodes": 2}),
    ],
)
def test_a_queue_of_kueue_is_the_queue(body: dict[str, Any]) -> None:
    """Its labels are left out of the job and of its pods: Kueue would hold both back."""
    labels = {"kueue.x-k8s.io/queue-name": "team-a", "kueue.x-k8s.io/priority-class": "high"}
    annotations = {"kueue.x-k8s.io/podset-required-topology": "rack", "owner": "me"}
    body["metadata"] |= {"labels": {**labels, "team": "a"}, "annotations": annotations}
    roles = [*body["spec"].get("replicaSpecs", ())]
    roles += body["spec"].get("pytorchReplicaSpecs", {}).values()
    for role in roles:
        role["template"]["metadata"] = {"labels": {**labels, "app": "b"}}
    training_job, hints, losses = converted(body)

    assert training_job["spec"]["trainer"]["queue"] == "team-a"
    assert training_job["metadata"]["labels"] == {"team": "a"}
    assert training_job["metadata"]["annotations"] == {"owner": "me"}
    assert "kueue" not in json.dumps(training_job)
    assert any("metadata.labels.kueue.x-k8s.io/queue-name: " in line for line in hints)
    for name in ("labels.kueue.x-k8s.io/priority-class", "podset-required-topology"):
        assert any(f"{name}: " in line for line in losses)


def test_what_only_a_runtime_knows_is_lost() -> None:
    """The number of nodes too."""
    training_job, _, losses = converted(train_job(trainer={"image": "torch"}))

    assert training_job["spec"]["trainer"]["max"] == 1
    assert any("spec.trainer.numNodes is missing" in line for line in losses)


def test_a_bound_that_is_missing_is_the_other_one() -> None:
    """As the operator completes an elasticPolicy."""
    for policy in ({"minReplicas": 3}, {"maxReplicas": 3}):
        body = pytorch_job(pod_template(*TORCHRUN), elasticPolicy=policy)
        trainer = converted(body)[0]["spec"]["trainer"]
        assert (trainer["min"], trainer["max"]) == (3, 3)


def test_an_exported_job_is_read() -> None:
    """What the API server and kubectl have added is no part of it."""
    body = pytorch_job(pod_template(*TORCHRUN))
    body["metadata"] |= {
        "uid": "1",
        "clusterName": "",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    training_job, _, losses = converted({**body, "status": {"conditions": []}})

    assert training_job["metadata"] == {"name": "mnist"}
    assert losses == []


def test_volcanos_plugin_for_torch_makes_master_and_workers_trainers() -> None:
    """With torchrun's variables and store; the name of the master's task is in the plugin's words."""
    for words, name in ([], "master"), (["--master=chief", "--port=1"], "chief"):
        body = volcano(
            {"name": name, "replicas": 1, "template": pod_template(*TORCHRUN)},
            {"name": "worker", "replicas": 3, "template": pod_template(*TORCHRUN)},
            {"name": "ps", "replicas": 1, "template": pod_template("ps")},
            plugins={"pytorch": words, "svc": []},
            minAvailable=3,
        )
        training_job, hints, losses = converted(body)
        spec = training_job["spec"]

        assert (spec["trainer"]["min"], spec["trainer"]["max"]) == (2, 4)
        assert spec["environment"] == ["torch"]
        assert spec["master"]["template"]["spec"]["containers"][0]["image"] == "torch"
        assert "parameterServers" not in spec
        assert any("spec.plugins.svc: " in line for line in losses)
        assert any("spec.tasks.2: ignored" in line for line in losses)
        assert any("spec.tasks.0.template: its pods are trainers" in line for line in hints)


def test_a_master_of_volcano_with_another_template_is_lost() -> None:
    """All trainers have the workers' one; a task of that name is no trainer without the plugin."""
    tasks = (
        {"name": "master", "replicas": 1, "template": pod_template("torchrun", "master.py")},
        {"name": "worker", "replicas": 3, "minAvailable": 2, "template": pod_template(*TORCHRUN)},
    )
    spec = converted(volcano(*tasks, plugins={"pytorch": None}))[0]["spec"]
    assert (spec["trainer"]["min"], spec["trainer"]["max"]) == (3, 4)
    losses = converted(volcano(*tasks, plugins={"pytorch": []}))[2]
    assert any("spec.tasks.0.template: ignored" in line for line in losses)

    other = converted(volcano(*tasks))[0]["spec"]
    assert (other["trainer"]["max"], other.get("environment")) == (3, None)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"queue": "default"}, "spec.queue: ignored: it is Volcano's default"),
        ({"plugins": {"env": []}}, "spec.plugins.env: ignored"),
    ],
)
def test_what_is_volcanos_own_is_named(spec: dict[str, Any], text: str) -> None:
    """Its queue `default` may be none of EDL's."""
    body = volcano({"replicas": 2, "template": pod_template("a")}, **spec)
    training_job, hints, losses = converted(body)

    assert any(text in line for line in (*hints, *losses))
    assert "queue" not in training_job["spec"]["trainer"]


def test_groups_of_a_task_are_lost() -> None:
    """EDL has none."""
    body = volcano({"replicas": 2, "template": pod_template("a"), "partitionPolicy": {"a": 1}})

    assert any("spec.tasks.0.partitionPolicy: " in line for line in converted(body)[2])


def test_a_task_of_servers_without_pods_makes_none() -> None:
    """It was one server."""
    body = volcano(
        {"replicas": 2, "template": pod_template("a")},
        {"name": "ps", "replicas": 0, "minAvailable": 0, "template": pod_template("b")},
    )
    training_job, _, losses = converted(body)

    assert "parameterServers" not in training_job["spec"]
    assert any("spec.tasks.1: ignored" in line for line in losses)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"volumes": [{"mountPath": "/a"}]}, "spec.volumes.0 has not both"),
        ({"volumes": [{"volumeClaimName": "a"}]}, "spec.volumes.0 has not both"),
        ({"plugins": ["svc"]}, "write a mapping"),
        ({"plugins": {"pytorch": {"a": 1}}}, "write a list"),
    ],
)
def test_what_volcano_refuses_is_refused(spec: dict[str, Any], text: str) -> None:
    """A volume without a claim, or without a path, was left out in silence."""
    with pytest.raises(EdlError) as refused:
        converted(volcano({"replicas": 2, "template": pod_template("a")}, **spec))

    assert text in str(refused.value)


def test_tasks_of_one_name_are_refused() -> None:
    """The first one was left out in silence."""
    task = {"name": "a", "replicas": 2, "template": pod_template("a")}

    with pytest.raises(EdlError, match=r"spec\.tasks\.1\.name is 'a', as of another task"):
        converted(volcano(task, task))
