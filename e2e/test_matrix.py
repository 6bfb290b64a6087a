"""`make matrix`: the demo's burst and a job's life on each version of Kubernetes that EDL supports.

What ran is written to `build/matrix.json`, of which `python -m e2e.support` makes the table in docs/install.md.
"""

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from rich.console import Console

from e2e import support
from e2e.cluster import build
from e2e.cluster.build import Binaries
from e2e.cluster.toolchain import KUBERNETES
from e2e.demo.run import play
from e2e.demo.view import view
from e2e.environment import Environment, isolated_namespace, running_environment
from e2e.scheduling import SchedulingMode
from e2e.waiting import until_true
from e2e.workload import QUICK
from kube import request
from kube.request import PODS, Request
from policy.cluster.snapshot import Pod
from policy.names import Tier

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(4000)]  # the first run builds Kubernetes

_WAIT_S = 60.0


@pytest.fixture(scope="module")
def results() -> Iterator[dict[str, dict[str, Any]]]:
    """Minor version -> what it showed, with what failed left out; of earlier runs for other versions."""
    rows: dict[str, dict[str, Any]] = support.results()
    yield rows
    support.RESULTS.parent.mkdir(exist_ok=True)
    support.RESULTS.write_bytes(orjson.dumps(rows, option=orjson.OPT_INDENT_2))


@pytest.fixture(scope="module", params=KUBERNETES)
def minor(request: pytest.FixtureRequest) -> str:
    """A minor version of Kubernetes."""
    return str(request.param)


@pytest.fixture(scope="module")
def binaries(minor: str, results: dict[str, dict[str, Any]]) -> Binaries:
    """Its programs."""
    results[minor] = {}
    return build.ensure(build.cache_root(os.environ), kit=KUBERNETES[minor])


def test_services_take_their_room_in_a_burst(
    minor: str,
    binaries: Binaries,
    tmp_path: Path,
    results: dict[str, dict[str, Any]],
    report: Callable[[str], None],
) -> None:
    """The demo in its small version: every service runs before the plateau is over."""
    with view(Console(file=io.StringIO())) as quiet:
        run = play(binaries, tmp_path, QUICK, quiet, SchedulingMode.EXTENDER)
    (reclaim,) = run.figures.reclaims
    report(f"{minor}: services wait {reclaim.seconds} s")

    assert reclaim.seconds is not None
    assert run.figures.competitors == 0
    assert all(start.whole_s is not None for start in run.figures.start_ups)
    results[minor]["burst"] = True


def test_a_job_lives_from_its_minimum_to_its_end(
    minor: str, binaries: Binaries, tmp_path: Path, results: dict[str, dict[str, Any]]
) -> None:
    """It is refused with a mistake, starts, grows, gives way, loses a trainer, and is complete."""
    with (
        running_environment(tmp_path, binaries=binaries) as environment,
        isolated_namespace(environment, "life") as namespace,
    ):
        version = _version(environment)
        namespace.submit("net", low=3, high=30)
        namespace.wait_running("net", 30, _WAIT_S)
        namespace.services(20)
        namespace.wait_services(20, _WAIT_S)
        lost, *_ = (t for t in namespace.trainers("net") if t.tier is Tier.GUARANTEED)
        environment.send(request.delete(PODS, namespace.name, lost.name))
        until_true(lambda: _minimum(namespace.trainers("net"), lost) == 3, _WAIT_S)
        namespace.services(0)
        namespace.wait_running("net", 30, _WAIT_S)
        namespace.wait_exact("net", _WAIT_S)
        for trainer in namespace.trainers("net"):
            body = {"status": {"phase": "Succeeded"}}
            patch = request.merge_patch(
                PODS, namespace.name, trainer.name, body, subresource="status"
            )
            environment.send(patch)
        until_true(lambda: namespace.job("net").finished, _WAIT_S)
        conditions = namespace.job("net").status.conditions

    assert version.removeprefix("v").startswith(f"{minor}.")
    assert {c.type for c in conditions if c.status == "True"} >= {"SuccessCriteriaMet", "Complete"}
    results[minor] |= {"life": True, "version": version}


def _minimum(trainers: list[Pod], lost: Pod) -> int:
    """Returns how many guaranteed trainers there are without one that was deleted."""
    return sum(pod.tier is Tier.GUARANTEED and pod.uid != lost.uid for pod in trainers)


def _version(environment: Environment) -> str:
    """Returns the version that the API server reports."""
    return str(environment.send(Request("GET", "/version"))["gitVersion"])
