"""`plan`, `when`, `snapshot`, `policy`: what would happen, without changing anything."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from cli import snapshots
from cli.commands import snapshot as snapshot_command
from cli.errors import ExitCode
from kube import request
from kube.errors import Unavailable
from policy.names import POLICY_CONFIGMAP, POLICY_KEY, SYSTEM_NAMESPACE
from policy.planning import snapshot_file
from policy.planning.snapshot_file import SnapshotFile
from tests.cli.cluster import Cli, check_snapshot


def _node(name: str, cpu: str = "8") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod(name: str, node: str, cpu: str) -> dict[str, Any]:
    container = {"name": "web", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running"},
    }


@pytest.fixture
def cluster(edl: Cli) -> Cli:
    """Two nodes, a service, a job that grows and one whose minimum fits nowhere."""
    for name in ("n0", "n1"):
        edl.cluster.add(request.NODES, _node(name))
    edl.cluster.add(request.PODS, _pod("web-0", "n0", "6"), "shop")
    edl.cluster.add_job("digits", low=1, high=8)
    edl.cluster.add_job("words", low=16, high=16)
    edl.cluster.writes.clear()
    return edl


def _set_policy(edl: Cli, text: str) -> None:
    body = {"metadata": {"name": POLICY_CONFIGMAP}, "data": {POLICY_KEY: text}}
    edl.cluster.add(request.CONFIGMAPS, body, SYSTEM_NAMESPACE)
    edl.cluster.writes.clear()


def test_plan_shows_the_next_step_and_what_comes_of_it(cluster: Cli) -> None:
    """As a table, of 60 columns too; and nothing is written."""
    check_snapshot("plan", cluster("plan").out)
    check_snapshot("plan-60", cluster("plan", columns=60).out)
    (digits, words) = json.loads(cluster("plan", "-o", "json").out)["jobs"]

    assert (digits["trainers"], digits["settles"]["trainers"]) == (0, 8)
    assert (words["next"], words["code"]) == (0, "WaitingForRoom")
    assert cluster.cluster.writes == []


def test_plan_shows_two_policies_beside_each_other(cluster: Cli, tmp_path: Path) -> None:
    """And the reason that holds with the new one."""
    path = tmp_path / "new.yaml"
    path.write_text("quotas: [{namespace: ml, requests: {cpu: 3}}]\n")

    check_snapshot("plan-policy", cluster("plan", "--policy", str(path)).out)
    digits = json.loads(cluster("plan", "--policy", str(path), "-o", "json").out)["jobs"][0]
    assert digits["policy"]["trainers"] == 3
    assert digits["policy"]["code"] == "QuotaReached"


def test_a_plan_without_a_forecast_is_one_step(cluster: Cli) -> None:
    """And an empty cluster has nothing to plan."""
    digits = json.loads(cluster("plan", "--no-forecast", "-o", "json").out)["jobs"][0]
    assert "settles" not in digits
    assert "SETTLES" not in cluster("plan", "--no-forecast").out
    assert digits["next"] == 8


def test_nothing_to_plan_is_a_sentence(edl: Cli) -> None:
    """A cluster without jobs."""
    assert edl("plan").out == "There are no elastic jobs.\nThe next plan changes nothing.\n"


@pytest.mark.parametrize("name", ["day.json", "day.json.gz"])
def test_a_snapshot_is_planned_as_the_cluster(cluster: Cli, tmp_path: Path, name: str) -> None:
    """Compressed or not."""
    path = tmp_path / name
    run = cluster("snapshot", str(path))
    assert (run.code, run.err) == (0, "")
    assert "2 nodes, 1 pods, 2 jobs" in run.out

    live = json.loads(cluster("plan", "-o", "json").out)
    replayed = json.loads(cluster("plan", "--snapshot", str(path), "-o", "json").out)

    numbers = [(job["next"], job["code"], job["settles"]["trainers"]) for job in live["jobs"]]
    assert numbers == [
        (job["next"], job["code"], job["settles"]["trainers"]) for job in replayed["jobs"]
    ]
    assert cluster.cluster.writes == []


def test_a_snapshot_with_the_decision_is_compared(cluster: Cli, tmp_path: Path) -> None:
    """One that the reconciler wrote has its plan."""
    path = tmp_path / "tick.json"
    cluster("snapshot", str(path))
    taken = snapshot_file.loads(path.read_bytes()).input
    path.write_bytes(snapshot_file.dumps(SnapshotFile(taken, taken.plan())))
    assert "The reconciler decided the same" in cluster("plan", "--snapshot", str(path)).out
    empty = snapshot_file.comparable(type(taken.plan())())
    path.write_bytes(snapshot_file.dumps(SnapshotFile(taken, empty)))
    assert "decided something different" in cluster("plan", "--snapshot", str(path)).out


def test_a_recording_keeps_the_newest(
    cluster: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until Ctrl-C; while the API server fails it goes on."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        (tmp_path / f"edl-2030010{len(pauses)}T000000Z.json.gz").write_bytes(b"old")
        if len(pauses) == 2:
            monkeypatch.setattr(cluster.cluster, "send", _fails)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(snapshot_command, "_pause", pause)
    run = cluster("snapshot", str(tmp_path), "--record", "--every", "5", "--keep", "2")

    assert run.code == ExitCode.INTERRUPTED
    assert pauses == [5.0, 5.0, 5.0]
    assert "edl: snapshot skipped: " in run.err
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[-1] == "edl-20300501T120000Z.json.gz"
    assert "edl-20300101T000000Z.json.gz" in names
    text = gzip.decompress((tmp_path / names[-1]).read_bytes())
    assert len(snapshot_file.loads(text).input.snapshot.nodes) == 2


def _fails(_: object) -> bytes:
    raise Unavailable("down", status=503, request="GET /api/v1/nodes")


def test_when_says_what_must_leave(cluster: Cli) -> None:
    """Of a job that waits, and of one that does not."""
    check_snapshot("when-waits", cluster("when", "words").out)
    check_snapshot("when-runs", cluster("when", "ml/digits").out)
    assert cluster("when", "job/digits").out == cluster("when", "digits", "-n", "ml").out
    result = json.loads(cluster("when", "words", "-o", "json").out)
    assert (result["first"], result["missing"]) == (2, 16)
    assert result["mustLeave"]["trainers"] == 6
    assert result["mustLeave"]["services"]


def test_an_unknown_job_has_the_nearest_name(cluster: Cli) -> None:
    """In one line; the same exit code for a file that does not exist."""
    run = cluster("when", "digit")
    assert (run.code, run.out) == (ExitCode.NOT_FOUND, "")
    assert run.err == "edl: there is no elastic job ml/digit (did you mean ml/digits?)\n"
    run = cluster("plan", "--snapshot", "/nonexistent")
    assert (run.code, run.err) == (ExitCode.NOT_FOUND, "edl: file /nonexistent does not exist\n")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda text: text[: len(text) // 2], "not a whole snapshot"),
        (lambda text: text.replace(b'"version": 1', b'"version": 7'), "a snapshot of version 7"),
        (lambda text: b"\x1f\x8b" + text, "not a whole snapshot"),
    ],
    ids=["half", "version", "binary"],
)
def test_a_broken_snapshot_is_one_line(
    cluster: Cli, tmp_path: Path, change: Any, complaint: str
) -> None:
    """Cut in half, of another version, or something else: nothing is planned."""
    path = tmp_path / "x.json"
    cluster("snapshot", str(path))
    path.write_bytes(change(path.read_bytes()))
    for command in (["plan"], ["when", "digits"]):
        run = cluster(*command, "--snapshot", str(path))
        assert (run.code, run.out) == (ExitCode.USAGE, "")
        assert run.err.startswith(f"edl: {path}: {complaint}")
        assert run.err.count("\n") == 1


def test_a_snapshot_that_makes_no_sense_is_one_line(cluster: Cli, tmp_path: Path) -> None:
    """Every field is right by itself, and the planner fails nevertheless."""
    path = tmp_path / "x.json"
    cluster("snapshot", str(path))
    fields = json.loads(path.read_bytes())
    fields["at_s"] = 1e300
    path.write_text(json.dumps(fields))
    for command in (["plan"], ["when", "words"]):
        run = cluster(*command, "--snapshot", str(path))
        assert (run.code, run.out) == (ExitCode.FAILED, "")
        assert run.err.startswith(f"edl: {path}: planning failed: ")
        assert run.err.count("\n") == 1


def test_a_compressed_file_that_was_cut_is_one_line(cluster: Cli, tmp_path: Path) -> None:
    """And a bad policy, and one that is a folder, are, too."""
    path = tmp_path / "x.json.gz"
    cluster("snapshot", str(path))
    path.write_bytes(path.read_bytes()[:40])
    bad = tmp_path / "bad.yaml"
    bad.write_text("reserv: {}\n")
    (tmp_path / "latin.yaml").write_bytes(b"\xff")
    large = tmp_path / "large.yaml"
    large.write_text("#" * 70_000)
    for words, complaint in (
        (["plan", "--snapshot", str(path)], f"{path} cannot be read"),
        (["plan", "--policy", str(bad)], f"{bad}: reserv: unknown field (did you mean reserve?)"),
        (["policy", "check", str(tmp_path / "latin.yaml")], f"{tmp_path}/latin.yaml: "),
        (["policy", "check", str(large)], f"{large} is larger than 65536 bytes"),
        (["policy", "check", str(tmp_path)], f"{tmp_path} cannot be read"),
        (["snapshot", str(tmp_path)], f"{tmp_path} is a folder"),
        (["snapshot", str(bad), "--record"], f"{bad} is not a folder"),
    ):
        run = cluster(*words)
        assert (run.code, run.out) == (ExitCode.USAGE, "")
        assert run.err.startswith(f"edl: {complaint}")
        assert run.err.count("\n") == 1


def test_a_small_file_that_unpacks_to_much_is_read_no_further_than_the_bound(
    cluster: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte of zeros in a kilobyte: memory holds a part more than the bound."""
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(bytes(1_000_000)))
    monkeypatch.setattr(snapshot_file, "MAX_BYTES", 5_000)
    monkeypatch.setattr(snapshots, "_PART_BYTES", 1_000)
    opened = []
    open_real = gzip.open

    def observed(file: Any) -> Any:
        opened.append(open_real(file))
        return opened[0]

    tells: list[int] = []
    monkeypatch.setattr(gzip, "open", observed)
    monkeypatch.setattr(gzip.GzipFile, "close", lambda self: tells.append(self.tell()))
    run = cluster("plan", "--snapshot", str(path))

    assert (run.code, run.err) == (ExitCode.USAGE, f"edl: {path} is larger than 5000 bytes\n")
    assert tells[0] == 6_000


@pytest.mark.parametrize("what", ["nodes", "pods", "jobs", "configmaps"])
def test_a_missing_right_is_named(cluster: Cli, tmp_path: Path, what: str) -> None:
    """A plan needs to see the whole cluster; nothing is written."""
    namespace = SYSTEM_NAMESPACE if what == "configmaps" else None
    cluster.cluster.forbidden.add((what, namespace))
    path = tmp_path / "x.json"
    for words in (["plan"], ["when", "digits"], ["snapshot", str(path)]):
        run = cluster(*words)
        assert (run.code, run.out) == (ExitCode.FORBIDDEN, "")
        assert what in run.err
        assert run.err.endswith(": ask an admin for the permission\n")  # -n would not help
        assert run.err.count("\n") == 1
    assert not path.exists()


def test_policy_check_show_and_diff(cluster: Cli, tmp_path: Path) -> None:
    """The file alone, the cluster's, and both."""
    path = tmp_path / "new.yaml"
    path.write_text("reserve: {maxLoad: {cpu: 0.9}}\nnodePools: [{name: a, labels: {b: c}}]\n")
    same = tmp_path / "same.yaml"
    same.write_text("")

    assert cluster("policy", "check", str(path)).out == (
        f"{path} is a valid policy: it sets reserve, nodePools.\n"
    )
    assert "is the default policy" in cluster("policy", "check", str(same)).out
    assert cluster("policy", "show").out == "The default policy is in force.\n"
    assert (
        cluster("policy", "diff", str(same)).out
        == "The file and the cluster have the same policy.\n"
    )

    _set_policy(cluster, "reserve: {maxLoad: {cpu: 0.8}, headroom: {cpu: 5%}}\n")
    check_snapshot("policy-show", cluster("policy", "show").out)
    check_snapshot("policy-diff", cluster("policy", "diff", str(path)).out)
    assert json.loads(cluster("policy", "show", "-o", "json").out)["source"] == "configmap"
    assert cluster.cluster.writes == []


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"reserve: {maxLoad: {cpu: 0.9}\nfoo", "in line 1, column 10"),
        (
            b"kind: ConfigMap\ndata: {policy.yaml: ''}\n",
            "is a ConfigMap: write the value of its key policy.yaml",
        ),
        (b'apiVersion: v1\nkind: "ConfigMap"\n', "is a ConfigMap"),
        (b"note: kind: ConfigMap", "not valid YAML"),
        (b"\xff\xfe", "not UTF-8 text"),
    ],
)
def test_what_is_no_policy_is_one_line(edl: Cli, tmp_path: Path, content: bytes, text: str) -> None:
    """It says what the file is instead, and where the mistake is."""
    path = tmp_path / "new.yaml"
    path.write_bytes(content)
    run = edl("policy", "check", str(path))

    assert (run.code, run.out) == (ExitCode.USAGE, "")
    assert text in run.err
    assert run.err.count("\n") == 1


def test_a_folder_is_no_snapshot(edl: Cli, tmp_path: Path) -> None:
    """The line names it once."""
    run = edl("plan", "--snapshot", str(tmp_path))
    assert run.code == ExitCode.USAGE
    assert run.err == f"edl: {tmp_path} cannot be read: Is a directory\n"


def test_an_invalid_policy_of_the_cluster_is_told(cluster: Cli) -> None:
    """By all commands that need it."""
    _set_policy(cluster, "reserve: 7")
    for words in (["policy", "show"], ["plan"], ["when", "digits"]):
        run = cluster(*words)
        assert run.code == ExitCode.FAILED
        assert "reserve" in run.err
        assert run.err.count("\n") == 1
