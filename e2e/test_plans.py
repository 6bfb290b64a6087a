"""`kubectl edl plan`, `when` and `snapshot` on a real control plane: they write nothing, and come true."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from cli.errors import ExitCode
from e2e.environment import Environment, IsolatedNamespace, running_environment
from e2e.settling import Ticks
from e2e.waiting import until
from policy.document import parser as document
from policy.names import ANNOTATION_QUEUE
from policy.planning import snapshot_file
from policy.planning.snapshot_file import comparable

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

_SETTLE_S = 45.0
_COMMAND_S = 60.0
_JOBS = {"day": "6", "night": "5", "free": "3"}
"""Name and queue of a job -> CPU of a trainer."""
_QUICK: dict[str, object] = {"stability": {"minRunSeconds": 0, "coolDownSeconds": 0.5}}
"""Delays that pace plans would cost half a minute a case; a forecast does not depend on them."""
_CASES: tuple[dict[str, object], ...] = (
    {"quotas": [{"queue": "day", "requests": {"cpu": "24"}}]},
    {"reserve": {"maxLoad": {"cpu": 0.6}}},
    {"fairness": {"queueWeights": {"night": 4}}},
    {"sizes": [{"powersOfTwo": True}]},
    {"reserve": {"headroom": {"cpu": "20%"}}, "fairness": {"by": "fulfilment"}},
)


@pytest.fixture(scope="module")
def ticks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for the inputs of the reconciler's plans."""
    return tmp_path_factory.mktemp("ticks")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, ticks: Path) -> Iterator[Environment]:
    """A cluster whose reconciler writes snapshots."""
    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("EDL_RECONCILER_SNAPSHOT_FOLDER", str(ticks))
        variables.setenv("EDL_RECONCILER_SNAPSHOTS_KEPT", "2000")
        with running_environment(tmp_path_factory.mktemp("plans")) as prepared:
            yield prepared


def edl(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as a user does."""
    command = [sys.executable, "-m", "cli", *words, "--kubeconfig", str(kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)


def _counts(namespace: IsolatedNamespace) -> dict[str, int]:
    return {f"{namespace.name}/{job}": len(namespace.trainers(job)) for job in _JOBS}


def test_policies_do_what_plan_said(
    namespace: IsolatedNamespace, tmp_path: Path, ticks: Path, report: Callable[[str], None]
) -> None:
    """Within one trainer a job, one policy after the other; and each plan can be made again."""
    kubeconfig = namespace.environment.cluster.admin
    for job, cpu in _JOBS.items():
        namespace.submit(job, low=2, high=30, cpu=cpu)
        namespace.edit(job, {"metadata": {"annotations": {ANNOTATION_QUEUE: job}}})
    namespace.services(8)
    namespace.wait_services(8, _SETTLE_S)
    keys = {f"{namespace.name}/{job}" for job in _JOBS}
    settled = Ticks(ticks)
    in_force = document.parse(namespace.environment.policy)
    assert settled.settle(in_force, keys, 8, _SETTLE_S) == ""
    right = 0
    for number, case in enumerate(_CASES):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump({**case, **_QUICK}))
        shown = edl(kubeconfig, "plan", "--policy", str(path), "-o", "json")
        assert shown.returncode == 0, shown.stderr
        predicted = {
            row["job"]: row["policy"]["trainers"] for row in json.loads(shown.stdout)["jobs"]
        }
        before = _counts(namespace)
        namespace.environment.set_policy(path.read_text())
        assert settled.settle(document.parse(path.read_text()), keys, 8, _SETTLE_S) == ""
        happened = _counts(namespace)
        right += all(abs(predicted[key] - count) <= 1 for key, count in happened.items())
        report(f"{json.dumps(case)}: {before} -> {predicted} said, {happened} happened")

    files = [snapshot_file.loads(path.read_bytes()) for path in sorted(ticks.glob("*.json"))]
    same = sum(comparable(file.input.plan()) == file.decided for file in files)
    report(
        f"{same} of {len(files)} plans made again alike, {right} of {len(_CASES)} forecasts right"
    )
    assert same == len(files) > 0
    assert right == len(_CASES)


def test_a_job_that_waits_is_told_what_must_leave(
    namespace: IsolatedNamespace, tmp_path: Path
) -> None:
    """Live and on a snapshot; whoever may not see the cluster gets one line."""
    kubeconfig = namespace.environment.cluster.admin
    namespace.submit("first", low=30, high=30)
    until("the minimum runs", lambda: namespace.running("first"), lambda n: n == 30, _SETTLE_S)
    namespace.submit("second", low=30, high=30)
    until("it waits", lambda: namespace.job("second").status.conditions, bool, _SETTLE_S)

    shown = edl(kubeconfig, "when", f"{namespace.name}/second", "-o", "json")
    assert shown.returncode == 0, shown.stderr
    place = json.loads(shown.stdout)
    assert (place["first"], place["last"], place["code"]) == (1, 1, "WaitingForRoom")
    assert place["mustLeave"]["anyOf"] == [f"{namespace.name}/first"]

    file = tmp_path / "now.json.gz"
    assert edl(kubeconfig, "snapshot", str(file)).returncode == 0
    replayed = edl(kubeconfig, "plan", "--snapshot", str(file), "-o", "json")
    assert [row["next"] for row in json.loads(replayed.stdout)["jobs"]] == [30, 0]

    powerless = namespace.environment.cluster.kubeconfig("nobody", ())
    for words in (["plan"], ["when", "first"], ["snapshot", str(tmp_path / "x.json")]):
        refused = edl(powerless, *words)
        assert refused.returncode == ExitCode.FORBIDDEN
        assert refused.stdout == ""
        assert refused.stderr.count("\n") == 1
