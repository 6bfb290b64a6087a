"""TrainingJobs as users handle them, with the cluster's own kubectl."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import commands, documented
from e2e.environment import NODE_COUNT, IsolatedNamespace
from e2e.waiting import until
from kube import request
from kube.request import JOBS, PODS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

EXAMPLE = Path(__file__).parents[1] / "examples/training-job.yaml"
ALL_SLOTS = 6 * NODE_COUNT
"""Services of 3 CPU that take every node of 18."""
IP = "jsonpath={.spec.clusterIP}"
PADDLE_FILE = Path(__file__).parents[1] / "tests/sdk/convert/files/examplejob.yaml"


def _kubectl(namespace: IsolatedNamespace, *words: str, text: str = "") -> tuple[int, str]:
    """Exit code and output."""
    cluster = namespace.environment.cluster
    done = commands.kubectl(cluster, "-n", namespace.name, *words, text=text)
    return done.returncode, done.stdout + done.stderr


def _training_job(low: int = 2, high: int = 6, **spec: Any) -> dict[str, Any]:
    """Returns the example, with pods of this cluster's size and without a master."""
    body: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    body["spec"].pop("master")
    body["spec"]["trainer"] |= {"min": low, "max": high}
    container = body["spec"]["trainer"]["template"]["spec"]["containers"][0]
    container["resources"]["requests"] = {"cpu": "5", "memory": "1Gi"}
    body["spec"] |= spec
    return body


def _template_with(**fields: Any) -> dict[str, Any]:
    """One with further fields of the trainers' template."""
    body = _training_job()
    body["spec"]["trainer"]["template"] |= fields
    return body


def _apply(namespace: IsolatedNamespace, body: dict[str, Any], *words: str) -> tuple[int, str]:
    return _kubectl(namespace, "apply", *words, "-f", "-", text=json.dumps(body))


def _columns(namespace: IsolatedNamespace) -> list[str]:
    """Returns the first row of `kubectl get tj`."""
    return _kubectl(namespace, "get", "tj", "--no-headers")[1].split()


def test_a_training_job_from_apply_to_delete(namespace: IsolatedNamespace) -> None:
    """It grows, is scaled, suspended and resumed, and nothing of it is left when it is deleted."""
    assert _apply(namespace, _training_job(), "--server-side")[0] == 0
    code, text = _kubectl(
        namespace, "wait", "tj/digits", "--for=condition=Running", "--timeout=30s"
    )
    assert code == 0, text
    namespace.wait_running("digits", 6, 30)
    columns = until(
        "the table shows it",
        lambda: _columns(namespace),
        lambda words: words[1:5] == ["Running", "6", "2", "6"],
        30,
    )
    assert columns[0] == "digits"

    assert _kubectl(namespace, "scale", "tj/digits", "--replicas=3")[0] == 0
    namespace.wait_running("digits", 3, 20)
    patch = ("patch", "tj/digits", "--type=merge", "-p")
    assert _kubectl(namespace, *patch, '{"spec": {"suspend": true}}')[0] == 0
    namespace.wait_running("digits", 0, 20)
    code, text = _kubectl(
        namespace, "wait", "tj/digits", "--for=condition=Suspended", "--timeout=30s"
    )
    assert code == 0, text
    assert _kubectl(namespace, *patch, '{"spec": {"suspend": false}}')[0] == 0
    namespace.wait_running("digits", 3, 20)

    code, text = _kubectl(namespace, "delete", "tj/digits", "--cascade=foreground", "--timeout=60s")
    assert code == 0, text
    api = namespace.environment
    for kind in (JOBS, PODS):
        until(
            f"no {kind.plural} are left",
            lambda kind=kind: api.send(request.list_page(kind, namespace.name))["items"],  # type: ignore[misc]
            lambda items: not items,
            30,
        )


def test_one_that_is_replaced_by_force_starts_again(namespace: IsolatedNamespace) -> None:
    """Deleted and created in the same second: its new Job comes as soon as the old one is gone."""
    assert _apply(namespace, _training_job())[0] == 0
    namespace.wait_running("digits", 6, 30)
    owner = ("get", "job/digits", "-o", "jsonpath={.metadata.ownerReferences[0].uid}")
    before = _kubectl(namespace, *owner)[1]
    words = ("replace", "--force", "--grace-period=0", "-f", "-")
    code, text = _kubectl(namespace, *words, text=json.dumps(_training_job()))
    assert code == 0, text
    uid = _kubectl(namespace, "get", "tj/digits", "-o", "jsonpath={.metadata.uid}")[1]
    assert uid != before
    until("it has a Job", lambda: _kubectl(namespace, *owner)[1], lambda text: text == uid, 60)
    words = ("get", "tj", "-w", "--output-watch-events", "--request-timeout=6s")
    rows = _kubectl(namespace, *words)[1]
    assert "ADDED" in rows
    namespace.wait_running("digits", 6, 60)
    code, text = _kubectl(namespace, "wait", "tj/digits", "--for=condition=Running")
    assert code == 0, text
    assert _kubectl(namespace, "delete", "tj", "digits", "--timeout=60s")[0] == 0


def test_its_end_is_that_of_its_job(namespace: IsolatedNamespace) -> None:
    """A trainer that ends with 0 ends it; `kubectl wait` sees it, and its time to live removes it."""
    body = _training_job(1, 2, ttlSecondsAfterFinished=20)
    assert _apply(namespace, body)[0] == 0
    namespace.wait_running(
        "digits", 2, 20
    )  # kwok would set a pod that has not started back to running
    for pod in namespace.trainers("digits"):
        _succeed(namespace, pod.name)
    code, text = _kubectl(
        namespace, "wait", "tj/digits", "--for=condition=Succeeded", "--timeout=40s"
    )
    assert code == 0, text
    code, text = _kubectl(namespace, "wait", "tj/digits", "--for=delete", "--timeout=60s")
    assert code == 0, text


def test_the_commands_of_the_page_work(namespace: IsolatedNamespace, tmp_path: Path) -> None:
    """Those of docs/training-job.md, on a job with pods of this cluster's size."""
    cluster = namespace.environment.cluster
    config = tmp_path / "kubeconfig"
    config.write_bytes(cluster.admin.read_bytes())
    (tmp_path / "training-job.yaml").write_text(yaml.safe_dump(_training_job(2, 3)))
    path = f"{cluster.kubectl.parent}:{os.environ['PATH']}"
    environ = {"PATH": path, "KUBECONFIG": str(config)}
    context = f"kubectl config set-context --current --namespace={namespace.name}"
    blocks = documented.run_by("e2e/test_training_jobs.py")
    for block in blocks:
        script = f"set -e\ncd {tmp_path}\n{context}\n{block.text}"
        done = commands.run(cluster, ["bash", "-c", script], environ=environ)

        assert done.returncode == 0, done.stdout + done.stderr
    assert len(blocks) == 1


def _succeed(namespace: IsolatedNamespace, pod: str) -> None:
    """The kubelet reports that a pod's program has ended with 0."""
    body = {"status": {"phase": "Succeeded"}}
    api = namespace.environment
    api.send(request.merge_patch(PODS, namespace.name, pod, body, subresource="status"))


_REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"min": 7}, {}, "trainer.min is greater than trainer.max"),
    ({"max": 0}, {}, "spec.trainer.max"),
    ({"mn": 1}, {}, 'unknown field "spec.trainer.mn"'),
    ({"template": {"spec": {"containers": []}}}, {}, "should have at least 1 items"),
    (
        {},
        {"parameterServers": {"replicas": 1}, "master": {"enabled": False}},
        "parameter servers need a master",
    ),
    ({}, {"passes": 3}, 'unknown field "spec.passes"'),
    ({}, {"master": {"epochs": 0}}, "spec.master.epochs"),
    ({}, {"master": {"data": " \n"}}, "data is empty or has control characters"),
    (
        {},
        {"master": {"epochs": 2, "template": {"spec": {"containers": []}}}},
        "are for EDL's own master",
    ),
]
"""Fields of the trainer, further fields of the spec, and a part of the refusal."""


def test_bad_input_is_refused_before_anything_is_created(namespace: IsolatedNamespace) -> None:
    """By the API server, with the field."""
    for trainer, spec, text in _REFUSED:
        body = _training_job(**spec)
        body["spec"]["trainer"] |= trainer
        code, output = _apply(namespace, body)
        assert code == 1, text
        assert text in output


def test_data_and_epochs_reach_the_trainers_and_stay(namespace: IsolatedNamespace) -> None:
    """As variables of each trainer; another data set needs another job."""
    body = _training_job(1, 2, master={"data": "/data/train", "epochs": 12})
    assert _apply(namespace, body)[0] == 0
    namespace.wait_running("digits", 2, 30)
    for pod in namespace.trainers("digits"):
        fields = namespace.environment.send(request.get(PODS, namespace.name, pod.name))
        variables = {
            entry["name"]: entry.get("value") for entry in fields["spec"]["containers"][0]["env"]
        }
        assert (variables["EDL_DATA"], variables["EDL_EPOCHS"]) == ("/data/train", "12")
    body["spec"]["master"]["epochs"] = 13
    code, text = _apply(namespace, body)
    assert code == 1
    assert "data and epochs cannot change while the job exists" in text
    patch = '{"metadata": {"annotations": {"edl.training/epochs": "13"}}}'
    code, text = _kubectl(namespace, "patch", "job/digits", "--type=merge", "-p", patch)
    assert code == 1
    assert "edl.training/epochs cannot change, because" in text
    assert _kubectl(namespace, "explain", "tj.spec.master.epochs")[0] == 0
    assert _kubectl(namespace, "delete", "tj", "digits")[0] == 0


def test_kubectl_explains_and_compares_it(namespace: IsolatedNamespace) -> None:
    """`explain` has each field's words; `diff` shows what an apply would change, and then nothing."""
    code, text = _kubectl(namespace, "explain", "tj.spec.trainer")
    assert code == 0
    assert "The number of trainers with which the job starts" in text
    assert _apply(namespace, _training_job())[0] == 0
    changed = json.dumps(_training_job(high=4))
    code, text = _kubectl(namespace, "diff", "-f", "-", text=changed)
    assert code == 1
    assert "+    max: 4" in text
    same = json.dumps(_training_job())
    # EDL may write the status between the two versions that kubectl compares.
    until(
        "no change",
        lambda: _kubectl(namespace, "diff", "-f", "-", text=same)[0],
        lambda code: code == 0,
        20,
    )
    assert _kubectl(namespace, "delete", "tj", "digits")[0] == 0


def _count(namespace: IsolatedNamespace, job: str) -> int:
    return len([pod for pod in namespace.trainers(job) if pod.trainer_id >= 0])


def _wait_for(namespace: IsolatedNamespace, job: str, count: int, within_s: float = 60) -> None:
    until(f"{count} trainers", lambda: _count(namespace, job), lambda n: n == count, within_s)


def test_a_file_of_paddle_edl_lives_its_whole_life(namespace: IsolatedNamespace) -> None:
    """Unchanged: it grows to its maximum, gives way, comes back, is scaled, suspended, and leaves nothing."""
    cluster, words = namespace.environment.cluster, ("--apply", "--accept-losses")
    done = commands.edl(cluster, namespace.name, "convert", str(PADDLE_FILE), *words)
    assert done.returncode == 0, done.stderr
    assert "trainingjob example created with 2 to 6 trainers" in done.stdout
    _wait_for(namespace, "example", 6)

    namespace.services(ALL_SLOTS)
    namespace.wait_services(ALL_SLOTS, 60)
    assert _count(namespace, "example") < 6
    namespace.services(0)
    _wait_for(namespace, "example", 6, 90)

    assert _kubectl(namespace, "scale", "tj/example", "--replicas=3")[0] == 0
    _wait_for(namespace, "example", 3)
    patch = ("patch", "tj/example", "--type=merge", "-p")
    assert _kubectl(namespace, *patch, '{"spec": {"suspend": true}}')[0] == 0
    until("no pods", lambda: namespace.trainers("example"), lambda pods: not pods, 60)
    assert _kubectl(namespace, *patch, '{"spec": {"suspend": false}}')[0] == 0
    _wait_for(namespace, "example", 3)

    assert _kubectl(namespace, "delete", "tj", "example", "--timeout=60s")[0] == 0
    api = namespace.environment
    for kind in (JOBS, PODS, request.SECRETS, request.SERVICES):
        until(
            f"no {kind.plural} are left",
            lambda kind=kind: [  # type: ignore[misc]
                api_object["metadata"]["name"]
                for api_object in api.send(request.list_page(kind, namespace.name))["items"]
                if api_object["metadata"]["name"].startswith("example")
            ],
            lambda names: not names,
            40,
        )


def _role(port: int) -> dict[str, Any]:
    """Returns a program of the user's for a role."""
    container = {
        "name": "own",
        "image": "example/own:1",
        "ports": [{"containerPort": port}],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    return {"template": {"spec": {"containers": [container]}}}


def test_programs_of_ones_own_in_all_roles(namespace: IsolatedNamespace) -> None:
    """`describe` shows counts by role and the history of its scale; all pods know their peers."""
    body = _training_job(
        2,
        6,
        parameterServers={"replicas": 2, **_role(7164)},
        master=_role(8080),
        environment=["paddle", "torch"],
        volumes=[{"name": "data", "emptyDir": {}}],
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
    )
    body["spec"]["trainer"] |= {"sizes": [2, 4, 6], "processes": 4}
    code, text = _apply(namespace, body, "--server-side")
    assert code == 0, text
    _wait_for(namespace, "digits", 6)
    words = ("get", "tj/digits", "-o", "jsonpath={.status.roles}")
    until(
        "all roles are ready",
        lambda: json.loads(_kubectl(namespace, *words)[1] or "{}"),
        lambda roles: (
            roles
            == {
                "trainer": {"desired": 6, "ready": 6, "failed": 0},
                "parameterServers": {"desired": 2, "ready": 2, "failed": 0},
                "master": {"desired": 1, "ready": 1, "failed": 0},
            }
        ),
        20,
    )
    until(
        "the history is told",
        lambda: _kubectl(namespace, "describe", "tj/digits")[1],
        lambda text: "ScaledUp" in text and "JobCreated" in text,
        20,
    )
    pod = json.loads(_kubectl(namespace, "get", "pod", "digits-ps-0", "-o", "json")[1])
    (container,) = pod["spec"]["containers"]
    variables = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    address = _kubectl(namespace, "get", "service", "digits-ps-0", "-o", IP)[1]
    assert variables["PADDLE_PSERVERS_IP_PORT_LIST"].startswith(f"{address}:7164,")
    assert variables["TRAINING_ROLE"] == "PSERVER"
    assert container["volumeMounts"][0]["mountPath"] == "/data"

    assert _kubectl(namespace, "scale", "tj/digits", "--replicas=5")[0] == 0
    _wait_for(namespace, "digits", 4)  # 5 is no allowed size
    assert _kubectl(namespace, "delete", "tj", "digits", "--timeout=60s")[0] == 0
    until("its pods go", lambda: namespace.trainers("digits"), lambda pods: not pods, 40)


def test_the_same_job_with_annotations_behaves_alike(namespace: IsolatedNamespace) -> None:
    """Pod by pod: the Job that EDL has written, submitted by a user, gets the same pods."""
    body = _training_job(2, 3, environment=["paddle"], parameterServers={"replicas": 1, **_role(1)})
    assert _apply(namespace, body)[0] == 0
    _wait_for_pods(namespace, 4)
    job = json.loads(_kubectl(namespace, "get", "job/digits", "-o", "json")[1])
    ours = _specs(namespace)
    assert _kubectl(namespace, "delete", "tj", "digits", "--cascade=foreground")[0] == 0
    _wait_for_pods(namespace, 0)
    kept = ("edl.training/books", "edl.training/template-hash")
    annotations = {n: t for n, t in job["metadata"]["annotations"].items() if n not in kept}
    plain: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "digits", "annotations": annotations},
        "spec": {"template": {"spec": body["spec"]["trainer"]["template"]["spec"]}},
    }
    plain["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    code, text = _apply(namespace, plain)
    assert code == 0, text
    _wait_for_pods(namespace, 4)

    assert _specs(namespace) == ours
    assert _kubectl(namespace, "delete", "job", "digits", "--timeout=60s")[0] == 0


def _wait_for_pods(namespace: IsolatedNamespace, count: int) -> None:
    """Waits for a number of pods, including servers and terminating pods."""
    words = ("get", "pods", "-o", "name")
    until(
        f"{count} pods",
        lambda: _kubectl(namespace, *words)[1],
        lambda text: text.count("pod/") == count,
        60,
    )


def _specs(namespace: IsolatedNamespace) -> dict[str, Any]:
    """Name -> labels and containers of each pod, without what differs between any two."""
    pods = json.loads(_kubectl(namespace, "get", "pods", "-o", "json")[1])["items"]
    job_uid = pods[0]["metadata"]["ownerReferences"][0]["uid"]
    addresses = [
        service["spec"]["clusterIP"]
        for service in json.loads(_kubectl(namespace, "get", "services", "-o", "json")[1])["items"]
    ]
    text = json.dumps(
        {
            pod["metadata"]["name"]: [
                pod["metadata"]["labels"],
                [
                    {name: value for name, value in c.items() if name != "volumeMounts"}
                    for c in pod["spec"]["containers"]
                ],
                {n: pod["spec"].get(n) for n in ("priorityClassName", "restartPolicy")},
            ]
            for pod in pods
        },
        sort_keys=True,
    )
    for name in (job_uid, *addresses):
        text = text.replace(name, "X")
    specs: dict[str, Any] = json.loads(text)
    return specs


def test_who_may_edit_a_namespace_may_edit_training_jobs(namespace: IsolatedNamespace) -> None:
    """By the stock roles, with which EDL's are aggregated."""
    for role, verbs in (("edit", ("create", "delete")), ("view", ("list",))):
        binding = ("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}")
        assert _kubectl(namespace, *binding)[0] == 0
        for verb in verbs:
            question = ("auth", "can-i", verb, "trainingjobs", f"--as={role}")
            until(f"may {verb}", lambda q=question: _kubectl(namespace, *q)[1], _is_yes, 20)  # type: ignore[misc]
    assert not _is_yes(_kubectl(namespace, "auth", "can-i", "create", "tj", "--as=view")[1])


def _is_yes(text: str) -> bool:
    return text.split()[-1:] == ["yes"]


def test_a_refusal_of_its_job_is_seen_at_the_training_job(namespace: IsolatedNamespace) -> None:
    """Such as a template that the API server refuses; nothing is created."""
    body = _training_job()
    body["spec"]["trainer"]["template"]["spec"]["containers"][0].pop("image")
    assert _apply(namespace, body)[0] == 0
    words = ("get", "tj/digits", "-o", "jsonpath={.status.reason}")
    until("it says so", lambda: _kubectl(namespace, *words)[1], lambda text: text == "Refused", 20)
    assert _kubectl(namespace, "delete", "tj", "digits")[0] == 0

    mistyped = {"name": "data", "persistentVolumeClaims": {"claimName": "data"}}
    for body, text in (
        (_training_job(volumes=[mistyped]), 'unknown field "spec.template.spec.volumes[0]'),
        (_training_job(podFailurePolicy={"rulez": []}), 'unknown field "spec.podFailurePolicy'),
        (_template_with(metadata="x"), "cannot be handled as a Job"),
    ):
        assert _apply(namespace, body)[0] == 0
        message = ("get", "tj/digits", "-o", "jsonpath={.status.conditions[0].message}")
        until(
            "it names the field",
            lambda: _kubectl(namespace, *message)[1],  # noqa: B023 - called in this round
            lambda shown: text in shown,  # noqa: B023 - called in this round
            20,
        )
        assert _kubectl(namespace, "delete", "tj", "digits")[0] == 0

    servers = {"replicas": 1, **_role(7164)}
    servers["template"]["spec"]["containers"][0]["imge"] = "a"
    assert _apply(namespace, _training_job(parameterServers=servers))[0] == 0
    message = ("get", "tj/digits", "-o", "jsonpath={.status.conditions[0].message}")
    until(
        "it names the field",
        lambda: _kubectl(namespace, *message)[1],
        lambda text: "containers[0].imge is not read (did you mean image?)" in text,
        20,
    )
    assert namespace.trainers("digits") == []
    assert _kubectl(namespace, "delete", "tj", "digits")[0] == 0
