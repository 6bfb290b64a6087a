"""`why`, `describe`, `reclaims` and `top`: what they say of jobs and pods, and to whom."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import COMMANDS
from cli.errors import ExitCode
from kube import request
from kube.request import PODS
from policy.names import MANAGER
from policy.records import CLUSTER, ELSEWHERE, Record
from tests.cli.cluster import NOW_S, Cli, check_snapshot

ROOT = Path(__file__).parents[2]
KEY = "ml/digits"
NEEDS = {"cpu": "1", "memory": "1Gi"}
NO_ROOM = Record(
    NOW_S - 1000,
    f"job {KEY}",
    "NoRoom",
    "no node has capacity for one more trainer (1 cpu, 1Gi memory); closest is n1 with 500m cpu free",
    {"live": 3, "target": 3, "needs": NEEDS, "nearest": "n1"},
    KEY,
    NOW_S - 1000,
)


def _release(service: str) -> Record:
    text = f"{service} waits for 2 cpu"
    figures = {"service": service, "needs": {"cpu": "2"}, "node": "n0"}
    at_s = NOW_S - 1200
    return Record(at_s, f"pod {KEY}-trainer-4", "ServicesFirst", text, figures, KEY, at_s)


def _burst(services: dict[str, int], code: str = "Reclaimed", at_s: float = NOW_S - 1190) -> Record:
    spread = {"median": 1.2, "max": 2.5}
    figures = {
        "services": {
            name: {"count": count, "running": count, "worstSeconds": 2.5}
            for name, count in services.items()
        },
        "trainers": {KEY: {"count": 4, "lostSeconds": 31.0}},
        "stages": {
            "decide": {"median": 0.1, "max": 0.3},
            "free": spread,
            "start": {},
            "total": spread,
        },
        "lostSeconds": 31.0,
    }
    text = "8 of 8 services running, slowest 2.5 s; 4 trainers of 1 job evicted"
    return Record(at_s, "reclaim 18c", code, text, figures, since_s=NOW_S - 1195)


@pytest.fixture
def digits(edl: Cli) -> Cli:
    """A job that waits for room, and gave a trainer to a service of another namespace."""
    edl.cluster.add_job("digits", low=2, active=3)
    edl.cluster.add_records("ml", _release(ELSEWHERE), _burst({ELSEWHERE: 8}), log="history")
    edl.cluster.add_records("ml", NO_ROOM)
    edl.cluster.add_records(
        CLUSTER, _release("shop/web-1"), _burst({"shop/web-*": 8}), log="history"
    )
    return edl


def _pod(name: str, **status: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}, "status": status}


def test_why_of_a_job(digits: Cli) -> None:
    """Reason, since when, figures, what helps, and what has happened; also in 60 columns."""
    run = digits("why", "digits")

    assert (run.code, run.err) == (0, "")
    check_snapshot("why-job", run.out)
    narrow = digits("why", "digits", columns=60).out
    check_snapshot("why-job-60", narrow)
    assert max(map(len, narrow.splitlines())) <= 60


def test_who_may_read_the_clusters_records_sees_all_names(digits: Cli) -> None:
    """Others see that it was for another namespace."""
    whole = digits("why", "digits").out
    digits.cluster.forbidden = {("decisionlogs", CLUSTER)}
    part = digits("why", "digits").out

    assert "shop/web-1 waits for 2 cpu" in whole
    assert "another namespace waits for 2 cpu" in part
    assert "shop" not in part + digits("reclaims").out + digits("why", "digits", "-o", "json").out


def test_why_for_programs(digits: Cli) -> None:
    """Code, figures and history, without sentences to parse."""
    answer = json.loads(digits("why", "job/digits", "-o", "json").out)

    assert (answer["code"], answer["since"], answer["figures"]["nearest"]) == (
        "NoRoom",
        NOW_S - 1000,
        "n1",
    )
    assert [record["code"] for record in answer["history"]] == ["ServicesFirst", "NoRoom"]
    assert answer["helps"].startswith("Wait, add nodes")


def test_why_of_a_trainer_that_is_gone(digits: Cli) -> None:
    """The record outlives the pod."""
    check_snapshot("why-released", digits("why", "digits-trainer-4").out)


def test_why_of_a_pod_that_waits(digits: Cli) -> None:
    """kube-scheduler's words, which contain the extender's."""
    words = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    digits.cluster.add(
        PODS,
        _pod("web-1", phase="Pending", conditions=[{**condition, "message": words}]),
        "ml",
    )
    check_snapshot("why-unschedulable", digits("why", "pod/web-1").out)


def test_refusals_of_the_extender_are_explained(digits: Cli) -> None:
    """kube-scheduler's condition has its codes, which say nothing to a user."""
    words = (
        "0/3 nodes are available: 1 Insufficient cpu, 1 NodeCoolingDown, 1 NodePromisedToService."
    )
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod = _pod("digits-trainer-9", phase="Pending", conditions=[{**condition, "message": words}])
    digits.cluster.add(PODS, pod, "ml")

    check_snapshot("why-refused-by-extender", digits("why", "pod/digits-trainer-9").out)


def test_why_of_a_pod_whose_container_waits(digits: Cli) -> None:
    """Nothing that EDL decides."""
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    digits.cluster.add(
        PODS,
        _pod("web-2", phase="Pending", containerStatuses=[{"name": "main", "state": state}]),
        "ml",
    )

    assert "container main: ImagePullBackOff no such image" in digits("why", "web-2").out


@pytest.mark.parametrize(
    ("conditions", "code", "words"),
    [
        ([{"type": "Complete", "status": "True"}], "JobComplete", "The job has finished its work."),
        (
            [{"type": "Failed", "status": "True", "message": "too many failures"}],
            "JobFailed",
            "too many failures",
        ),
    ],
)
def test_why_of_an_ended_job(
    edl: Cli, conditions: list[dict[str, str]], code: str, words: str
) -> None:
    """Its last condition."""
    edl.cluster.add_job("old")
    status = {"status": {"startTime": "2030-05-01T11:00:00Z", "conditions": conditions}}
    edl.cluster.send(request.merge_patch(request.JOBS, "ml", "old", status, subresource="status"))
    answer = json.loads(edl("why", "old", "-o", "json").out)

    assert (answer["code"], answer["text"]) == (code, words)


def test_why_of_a_job_that_is_deleted(edl: Cli) -> None:
    """Its records remain."""
    end = Record(
        NOW_S - 60, "job ml/old", "JobDeleted", "deleted after its end", {}, "ml/old", NOW_S - 60
    )
    edl.cluster.add_records("ml", end, log="history")
    run = edl("why", "old")

    assert run.code == 0
    assert "job ml/old: deleted" in run.out
    assert "JobDeleted, 1m ago: deleted after its end" in run.out


def test_why_of_an_invalid_job_is_the_error(edl: Cli) -> None:
    """Also where EDL has recorded nothing."""
    edl.cluster.add_job("wrong", low=5, high=2)

    assert "min must not exceed max" in " ".join(edl("why", "wrong").out.split())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["why", "digit"], "job or pod digit not found in namespace ml (did you mean digits?)"),
        (["why", "pod/digits-trainer-5"], "(did you mean digits-trainer-4?)"),
        (["describe", "digist"], "job digist not found in namespace ml (did you mean digits?)"),
        (["suspend", "nothing"], "job nothing not found in namespace ml; `edl jobs -A`"),
        (["why", "x" * 300], "job or pod xxx"),
    ],
)
def test_an_unknown_name_is_one_line(digits: Cli, words: list[str], text: str) -> None:
    """With the nearest one; nothing is written."""
    run = digits(*words)

    assert (run.code, run.out) == (ExitCode.NOT_FOUND, "")
    assert text in run.err
    assert run.err.count("\n") == 1
    assert digits.cluster.writes == []


@pytest.mark.parametrize("name", ["node/n1", "a/b/c", "job/", "/"])
def test_what_can_be_no_name_is_refused(digits: Cli, name: str) -> None:
    """With how to write it."""
    run = digits("why", name)

    assert run.code == ExitCode.USAGE
    assert "write NAME, job/NAME or pod/NAME" in run.err


def test_describe(digits: Cli) -> None:
    """Facts, the reason, and the trainers with their nodes."""
    pod = _pod("digits-trainer-0", phase="Running")
    pod["metadata"] |= {
        "labels": {"edl.training/role": "trainer"},
        "annotations": {"edl.training/uncommitted-seconds": "12.5"},
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "digits",
                "uid": "u",
                "controller": True,
            }
        ],
    }
    pod["spec"] |= {"nodeName": "n0", "priorityClassName": "edl-guaranteed"}
    digits.cluster.add(PODS, pod, "ml")

    check_snapshot("describe", digits("describe", "digits").out)
    (shown,) = json.loads(digits("describe", "digits", "-o", "json").out)["pods"]
    assert (shown["node"], shown["tier"], shown["uncommittedSeconds"]) == ("n0", "guaranteed", 12.5)


def test_reclaims(digits: Cli) -> None:
    """Of the namespace and of the cluster; a burst that goes on has no last figures."""
    check_snapshot("reclaims", digits("reclaims", "-A").out)
    narrow = digits("reclaims", "-A", columns=60).out
    check_snapshot("reclaims-60", narrow)
    assert max(map(len, narrow.splitlines())) <= 60
    (burst,) = json.loads(digits("reclaims", "-A", "-o", "json").out)
    assert burst["over"]
    assert burst["services"]["shop/web-*"]["count"] == 8


def test_the_newest_record_of_a_burst_counts(edl: Cli) -> None:
    """While it goes on it is recorded now and then."""
    edl.cluster.add_records(
        CLUSTER,
        _burst({"a": 1}, "Reclaiming", NOW_S - 40),
        _burst({"a": 9}, "Reclaiming", NOW_S - 10),
    )
    (burst,) = json.loads(edl("reclaims", "-A", "-o", "json").out)

    assert not burst["over"]
    assert burst["services"] == {"a": {"count": 9, "running": 9, "worstSeconds": 2.5}}


def test_a_burst_without_a_value_is_shown_with_the_others(edl: Cli) -> None:
    """Its sum was not a number that JSON has: a job's master had reported seconds without end."""
    endless = Record(NOW_S, "reclaim 1", "Reclaimed", "", {"lostSeconds": None})
    edl.cluster.add_records(CLUSTER, endless, log="history")
    assert "none" in edl("reclaims", "-A").out


def test_no_reclaims_is_a_sentence(edl: Cli) -> None:
    """Also for whoever has no namespace with records."""
    assert edl("reclaims").out.startswith("The records show no service")


def test_top_prints_once_in_a_pipe(digits: Cli) -> None:
    """Services that wait, jobs with shares, the newest burst, the objective."""
    digits.cluster.add(PODS, _pod("web-9", phase="Pending"), "shop")
    node = {"metadata": {"name": "n0"}, "status": {"allocatable": {"cpu": "8", "memory": "64Gi"}}}
    digits.cluster.add(request.NODES, node)
    text = "190 of 200 services within 5 s (objective 0.95), 0% of the budget left"
    figures = {"kept": 190, "missed": 10, "burn": {"1h": 0.5}, "buckets": [[1, 2, 3]]}
    standing = Record(NOW_S, "objective reclaim", "Objective", text, figures)
    digits.cluster.add_records(CLUSTER, standing)

    check_snapshot("top", digits("top", "-A").out)
    shown = json.loads(digits("top", "-o", "json").out)
    assert shown["objective"] == {"kept": 190, "missed": 10, "burn": {"1h": 0.5}}
    assert shown["jobs"][0]["share"] == 0.375


def test_top_without_rights_on_nodes_has_no_shares(digits: Cli) -> None:
    """It shows what the caller may see."""
    digits.cluster.forbidden = {("nodes", None), ("pods", "ml"), ("decisionlogs", CLUSTER)}
    shown = json.loads(digits("top", "-o", "json").out)

    assert shown["jobs"][0]["share"] is None
    assert shown["objective"] is None


def test_changes_are_sent_with_the_callers_rights(digits: Cli) -> None:
    """Bounds and suspension, each one write; what is so already is not written."""
    assert digits("scale", "digits", "--max", "5").out == "job ml/digits now has 2 to 5 trainers\n"
    assert digits("suspend", "digits").out == "job ml/digits suspended\n"
    assert digits("suspend", "digits").out == "job ml/digits is already suspended\n"
    assert digits("resume", "job/digits").out == "job ml/digits resumed\n"
    assert len(digits.cluster.writes) == 3


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["scale", "digits"], "set --min, --max or both"),
        (["scale", "digits", "--max", "1"], "min must not exceed max"),
        (["scale", "digits", "--max", "0"], "0 is not in the range"),
        (["scale", "pod/digits", "--max", "3"], "this command changes only jobs"),
    ],
)
def test_wrong_bounds_are_refused_before_they_are_sent(
    digits: Cli, words: list[str], text: str
) -> None:
    """In one line."""
    run = digits(*words)

    assert run.code == ExitCode.USAGE
    assert text in run.err
    assert run.err.count("\n") == 1
    assert digits.cluster.writes == []


def test_of_the_job_of_a_trainingjob_the_trainingjob_is_changed(edl: Cli) -> None:
    """EDL would take a change of the Job back."""
    edl.cluster.add(
        request.TRAININGJOBS, {"metadata": {"name": "net"}, "spec": {"trainer": {"max": 4}}}, "ml"
    )
    owner = {"apiVersion": "edl.training/v1", "kind": "TrainingJob", "name": "net", "uid": "u"}
    annotations = {"edl.training/min-trainers": "1", "edl.training/max-trainers": "4"}
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    body = {
        "metadata": {"name": "net", "annotations": annotations, "ownerReferences": [owner]},
        "spec": {"managedBy": MANAGER, "template": {"spec": {"containers": [container]}}},
    }
    edl.cluster.add(request.JOBS, body, "ml")
    edl("scale", "net", "--max", "9")
    edl("suspend", "net")
    changed = json.loads(edl.cluster.send(request.get(request.TRAININGJOBS, "ml", "net")))

    assert changed["spec"] == {"trainer": {"max": 9}, "suspend": True}


def test_a_change_without_rights_is_one_line(digits: Cli) -> None:
    """It names the right."""
    digits.cluster.forbidden_writes = True
    run = digits("suspend", "digits")

    assert (run.code, run.out) == (ExitCode.FORBIDDEN, "")
    assert run.err == (
        "edl: you may not patch jobs.batch in the namespace ml: ask an admin for the permission\n"
    )


def test_who_may_not_see_all_namespaces_is_told_to_name_one(digits: Cli) -> None:
    """With -A, which is what asks for all."""
    digits.cluster.forbidden = {("jobs", None)}
    run = digits("jobs", "-A")

    assert run.code == ExitCode.FORBIDDEN
    assert "in all namespaces: set a namespace with -n, or ask an admin" in run.err


def test_kubectl_completes_commands_flags_and_jobs(digits: Cli) -> None:
    """In the form that kubectl reads: candidates, and that file names are none."""
    assert digits("__complete", "sus").out.splitlines()[0].startswith("suspend\t")
    assert "--namespace" in digits("__complete", "why", "--name").out
    assert digits("__complete", "why", "di").out == "digits\n:4\n"
    assert digits("__complete", "scale", "-n", "shop", "").out == ":4\n"


def test_a_completion_without_a_cluster_is_silent(digits: Cli) -> None:
    """And no error."""
    digits.cluster.forbidden = {("jobs", "ml")}
    run = digits("__complete", "why", "di")

    assert (run.code, run.out, run.err) == (0, ":4\n", "")


def test_the_command_of_the_sdk_has_all_commands() -> None:
    """By entry points, as the SDK imports no other room."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert set(project["entry-points"]["edl.commands"]) == set(COMMANDS)
