"""What users and admins do to elastic Jobs, on a real control plane with EDL beside it."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from e2e.cluster.nodes import node
from e2e.edl import ROOMS
from e2e.journey import SLOTS, Journey, World, journey, readiness, until, world
from e2e.measure.processes import cpu_seconds
from kube import request
from kube.errors import Invalid
from kube.request import CONFIGMAPS, NODES, PODDISRUPTIONBUDGETS, PODS, VALIDATINGWEBHOOKS
from policy.names import POLICY_CONFIGMAP, POLICY_KEY, SYSTEM_NAMESPACE, Tier
from policy.snapshot import Phase
from reconciler.status import WAITING
from runtime import clock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

KUBECTL_S = 30.0
QUIET_S = 12.0
"""Longer than two slow ticks of the reconciler."""
WEBHOOK = "edl-webhook"
MODEL = Path(__file__).parents[1] / "examples/models/digits_numpy.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One cluster with EDL for all journeys of this file."""
    with world(tmp_path_factory.mktemp("jobs")) as found:
        yield found


@pytest.fixture
def here(site: World, request: pytest.FixtureRequest) -> Iterator[Journey]:
    """A namespace of the journey's own."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:50]
    with journey(site, name) as found:
        yield found


def kubectl(here: Journey, *words: str) -> str:
    """What the cluster's own kubectl prints."""
    cluster = here.world.cluster
    command = [str(cluster.kubectl), f"--kubeconfig={cluster.admin}", "-n", here.namespace, *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=KUBECTL_S + 5, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def set_policy(found: World, text: str) -> None:
    """Writes the policy as an admin would."""
    body = {"data": {POLICY_KEY: text}}
    found.send(request.merge_patch(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP, body))


@pytest.fixture
def policy(site: World) -> Iterator[str]:
    """The policy's text; it is in force again after the journey."""
    stored = site.send(request.get(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP))
    text = str(stored["data"][POLICY_KEY])
    yield text
    set_policy(site, text)


def test_starts_with_minimum_and_grows(here: Journey) -> None:
    """A Job starts at once with its guaranteed trainers and grows into what is free."""
    here.submit("mnist", low=2, high=20)
    until("the minimum runs", lambda: here.running("mnist"), lambda n: n >= 2, 3)
    here.wait_running("mnist", 20, 6)

    def counts() -> tuple[int, int]:
        status = here.job("mnist").status
        return status.active, status.ready

    until("the Job's status says so", counts, lambda found: found == (20, 20), 8)
    found = here.wait_exact("mnist")
    guaranteed = sorted(
        pod.trainer_id for pod in here.trainers("mnist") if pod.tier is Tier.GUARANTEED
    )

    assert found.managed
    assert guaranteed == [0, 1]
    assert found.books.next_id == 20


def test_services_take_and_give_back(here: Journey) -> None:
    """A burst of services runs within 6 s on a full cluster; when it leaves, trainers return.

    None of the trainers that gave way counts as a failure, even where one failure is too many.
    """
    here.submit("mnist", low=2, high=SLOTS, spec={"backoffLimit": 0})
    here.wait_running("mnist", SLOTS, 12)
    here.services(40)
    took_s = here.wait_services(40, 15)
    meanwhile = here.running("mnist")
    time.sleep(2.0)  # nodes still cool down when the services leave: that must wedge no trainer
    here.services(0)
    here.wait_running("mnist", SLOTS, 12)

    found = here.wait_exact("mnist")

    print(f"40 services run after {took_s:.1f} s, {meanwhile} trainers stayed")
    assert took_s <= 6.0
    assert meanwhile >= 2
    assert found.status.failed == 0
    assert found.books.disrupted + found.books.released == found.books.next_id - SLOTS


def test_new_job_takes_surplus_at_once(here: Journey) -> None:
    """The guaranteed trainers of a new Job run at once on a cluster that others fill."""
    here.submit("old", low=2, high=SLOTS)
    here.wait_running("old", SLOTS, 12)
    here.submit("new", low=6, high=12)

    until("the minimum runs", lambda: here.running("new"), lambda n: n >= 6, 6)

    guaranteed = [pod for pod in here.trainers("new") if pod.tier is Tier.GUARANTEED]
    assert len(guaranteed) == 6
    assert {pod.phase for pod in guaranteed} == {Phase.RUNNING}
    assert here.running("old") >= 2
    here.wait_exact("old")
    here.wait_exact("new")


def test_bounds_are_edited(here: Journey) -> None:
    """A higher maximum lets a running Job grow, a lower one makes it shrink, a minimum rises."""
    here.submit("mnist", low=2, high=4)
    here.wait_running("mnist", 4, 6)
    here.edit("mnist", {"metadata": {"annotations": {"edl.training/max-trainers": "9"}}})
    here.wait_running("mnist", 9, 5)
    here.edit("mnist", {"metadata": {"annotations": {"edl.training/max-trainers": "3"}}})
    here.wait_running("mnist", 3, 5)
    here.edit("mnist", {"metadata": {"annotations": {"edl.training/min-trainers": "3"}}})

    def guaranteed() -> int:
        return sum(pod.tier is Tier.GUARANTEED for pod in here.trainers("mnist"))

    until("3 are guaranteed", guaranteed, lambda n: n == 3, 10)
    found = here.wait_exact("mnist")

    assert found.books.released == found.books.next_id - 3
    assert here.events("mnist", "TrainersReleased")


def test_suspend_and_resume(here: Journey) -> None:
    """A suspended Job has no trainers and says so; resumed, it has them again under new ids."""
    here.submit("mnist", low=2, high=4)
    here.wait_running("mnist", 4, 6)
    here.edit("mnist", {"spec": {"suspend": True}})
    here.wait_running("mnist", 0, 6)
    reason = here.wait_condition("mnist", "Suspended", 5)
    here.edit("mnist", {"spec": {"suspend": False}})
    here.wait_running("mnist", 4, 6)

    found = here.wait_exact("mnist")
    suspended = [c.status for c in found.status.conditions if c.type == "Suspended"]

    assert reason == "JobSuspended"
    assert suspended == ["False"]
    assert found.books.released == 4
    assert found.books.open == frozenset(range(4, 8))


def test_success_is_complete(here: Journey) -> None:
    """A Job whose trainers succeed is Complete for kubectl, and no trainer is made again."""
    here.submit("mnist", low=2, high=5, lives={"edl.training/kwok-run-time": "4s"})

    said = kubectl(
        here, "wait", "--for=condition=complete", "job/mnist", f"--timeout={KUBECTL_S:.0f}s"
    )
    table = kubectl(here, "get", "jobs")
    found = here.wait_exact("mnist")

    assert "condition met" in said
    assert "Complete" in table
    assert found.status.completion_s > found.status.start_s > 0
    assert found.books.succeeded == found.status.succeeded == found.books.next_id
    assert not found.books.open


def submit_model(here: Journey) -> "subprocess.CompletedProcess[str]":
    """`edl submit --apply` with the cluster's own kubectl, as a user calls it."""
    cluster = here.world.cluster
    words = ["--name", "digits", "--image", "my/paddle", "--min", "2", "--max", "3", "--apply"]
    words += ["--data", "/data/train.npz", "--namespace", here.namespace]
    path = f"{cluster.kubectl.parent}:{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "-m", "edl", "submit", str(MODEL), *words],
        env={**os.environ, "PATH": path, "KUBECONFIG": str(cluster.admin)},
        capture_output=True,
        text=True,
        timeout=2 * KUBECTL_S,
        check=False,
    )


def test_a_model_file_becomes_a_job(here: Journey) -> None:
    """`edl submit --apply` makes a Job whose trainers run; its file goes with it when it goes."""
    done, again = submit_model(here), submit_model(here)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "job digits is submitted, with 2 to 3 trainers\n"
    assert again.returncode == 2
    assert again.stderr.startswith("edl: kubectl refused Job digits: Error from server (AlreadyEx")
    assert again.stderr.count("\n") == 1
    here.wait_running("digits", 3, 12)
    (trainer, *_) = here.world.send(request.list_page(PODS, here.namespace))["items"]
    volumes = {one["name"]: one for one in trainer["spec"]["volumes"]}
    name = next(one["configMap"]["name"] for one in volumes.values() if "configMap" in one)
    kept = here.world.send(request.get(CONFIGMAPS, here.namespace, name))
    assert kept["data"] == {MODEL.name: MODEL.read_text()}
    kubectl(here, "delete", "job", "digits", "--wait=false")

    def left() -> list[str]:
        found = here.world.send(request.list_page(CONFIGMAPS, here.namespace))["items"]
        return [one["metadata"]["name"] for one in found]

    until("the file is gone", left, lambda names: name not in names, 10)


def test_failures_end_in_backoff_limit(here: Journey) -> None:
    """Failing trainers are counted, made again after a pause, and end the Job above its limit."""
    here.submit(
        "mnist",
        low=1,
        high=1,
        spec={"backoffLimit": 1},
        lives={"edl.training/kwok-fail-after": "1s"},
    )
    until("a failure", lambda: here.job("mnist").status.failed, lambda n: n == 1, 8)
    told = until("an event", lambda: here.events("mnist", "BackingOff"), bool, 5)
    begun_s = clock.monotonic_s()
    reason = here.wait_condition("mnist", "Failed", 20)

    found = here.wait_exact("mnist")

    assert reason == "BackoffLimitExceeded"
    assert "logs of the failed trainers" in told[0]["message"]
    assert clock.monotonic_s() - begun_s > 5.0
    assert (found.status.failed, found.books.next_id, found.status.active) == (2, 2, 0)


def test_evicted_trainer_is_no_failure(here: Journey) -> None:
    """A trainer that is evicted or deleted is made anew, though one failure would end the Job."""
    here.submit("mnist", low=2, high=4, spec={"backoffLimit": 0})
    here.wait_running("mnist", 4, 6)
    here.wait_exact("mnist")
    here.world.send(request.evict(here.namespace, "mnist-trainer-3"))
    kubectl(here, "delete", "pod", "mnist-trainer-0", "--wait=false")
    until(
        "both left",
        lambda: here.world.pods.left(here.namespace),
        lambda names: len(names) == 2,
        5,
    )
    here.wait_running("mnist", 4, 12)

    found = here.wait_exact("mnist")

    assert (found.status.failed, found.books.disrupted) == (0, 2)
    assert found.books.open == {1, 2, 4, 5}


def test_deleting_removes_everything(here: Journey) -> None:
    """With the Job go its trainers and its budget, as owner references promise."""
    here.submit("mnist", low=2, high=4)
    here.wait_running("mnist", 4, 6)
    budgets = request.list_page(PODDISRUPTIONBUDGETS, here.namespace)

    def left() -> tuple[int, int]:
        there = here.world.send(budgets)["items"]
        return len(here.world.pods.now(here.namespace)), len(there)

    until("the budget is there", left, lambda found: found == (4, 1), 5)
    kubectl(here, "delete", "job", "mnist", "--wait=false")

    until("nothing is left", left, lambda found: found == (0, 0), 10)
    made = {pod.name for pod in here.world.pods.ever(here.namespace)}
    assert made == {f"mnist-trainer-{number}" for number in range(4)}


def test_deadline_ends_the_job(here: Journey) -> None:
    """A Job that runs longer than activeDeadlineSeconds loses its trainers and is Failed."""
    here.submit("mnist", low=2, high=4, spec={"activeDeadlineSeconds": 5})
    here.wait_running("mnist", 4, 5)

    reason = here.wait_condition("mnist", "Failed", 20)
    found = here.wait_exact("mnist")

    assert reason == "DeadlineExceeded"
    assert (found.status.active, found.status.failed) == (0, 0)


def test_job_that_fits_no_node_says_so(here: Journey) -> None:
    """A trainer larger than every node waits in peace, and starts when a node is large enough.

    The Job's status, an event and the reconciler's records say the same, with figures and a way
    out; nothing is tried in the meantime.
    """
    here.submit("giant", low=1, high=2, cpu="100")
    code = here.wait_condition("giant", WAITING, 6)
    told = until("an event", lambda: here.events("giant", code), bool, 6)
    (said,) = [c.message for c in here.job("giant").status.conditions if c.type == WAITING]
    version = here.job("giant").resource_version
    begun_s = cpu_seconds(here.world.edl.pids["reconciler"])
    time.sleep(QUIET_S)
    used_s = cpu_seconds(here.world.edl.pids["reconciler"]) - begun_s
    record = decisions(here, "reconciler", f"job={here.namespace}/giant")[-1]

    print(f"the reconciler used {used_s:.2f} CPU seconds in {QUIET_S:.0f} s of waiting")
    assert code == record["code"] == "FitsNoNode"
    assert record["text"] == said
    assert "100 cpu" in said
    assert "18 cpu" in said
    assert told[0]["type"] == "Warning"
    assert said in told[0]["message"]
    assert "lower the trainers' requests" in told[0]["message"]
    assert used_s < QUIET_S * 0.05
    assert here.job("giant").resource_version == version
    assert len(here.events("giant", code)) == 1
    assert not here.world.pods.ever(here.namespace)

    with large_node(here):
        here.wait_running("giant", 1, 6)
        here.wait_exact("giant")
        (over,) = [c for c in here.job("giant").status.conditions if c.type == WAITING]
        kubectl(here, "delete", "job", "giant", "--wait=false")
        left = here.world.pods
        until("it is gone", lambda: left.now(here.namespace), lambda pods: not pods, 10)
    assert (over.status, over.reason) == ("False", "Started")


def test_who_asks_why_gets_the_records(here: Journey) -> None:
    """Of a job at its maximum, of one that does not exist, of a trainer given up."""
    here.submit("mnist", low=1, high=4)
    here.wait_running("mnist", 4, 6)
    here.edit("mnist", {"metadata": {"annotations": {"edl.training/max-trainers": "3"}}})
    here.wait_running("mnist", 3, 5)

    def found(about: str) -> list[dict[str, Any]]:
        kept = decisions(here, "reconciler", f"job={here.namespace}/mnist")
        return [record for record in kept if record["about"].startswith(about)]

    (given_up,) = until("the release is known", lambda: found("pod "), bool, 6)
    assert given_up["code"] == "AboveMax"
    assert given_up["figures"]["node"].startswith("node-")
    assert found("job ")[-1]["code"] == "AtMax"
    with pytest.raises(AssertionError, match="nothing is known of"):
        decisions(here, "reconciler", "job=nowhere/none")


@contextmanager
def large_node(here: Journey) -> Iterator[None]:
    """A node of 128 CPU joins for as long as the block lasts."""
    here.world.send(request.create(NODES, None, node("large", cpu="128")))
    try:
        yield
    finally:
        here.world.send(request.delete(NODES, None, "large"))


def decisions(here: Journey, room: str, query: str) -> list[dict[str, Any]]:
    """What a room has kept about a job or pod, asked from its own host."""
    parts = urlsplit(here.world.edl.url(room))
    with contextlib.closing(HTTPConnection(parts.netloc, timeout=5.0)) as connection:
        connection.request("GET", f"/decisions?{query}")
        answer = connection.getresponse()
        body = orjson.loads(answer.read())
    assert answer.status == HTTPStatus.OK, body
    found: list[dict[str, Any]] = body["decisions"]
    return found


def test_policy_is_edited_live(here: Journey, policy: str) -> None:
    """A new quota takes trainers away within 2 s, and gives them back when it is lifted."""
    here.submit("mnist", low=1, high=10)
    here.wait_running("mnist", 10, 6)
    quota = f"quotas: [{{namespace: {here.namespace}, requests: {{cpu: 20}}}}]\n"
    set_policy(here.world, policy + quota)
    until("4 stay", lambda: len(here.trainers("mnist")), lambda n: n == 4, 2)
    set_policy(here.world, policy)

    here.wait_running("mnist", 10, 6)
    here.wait_exact("mnist")


def test_bad_policy_never_rules(here: Journey, policy: str) -> None:
    """A bad policy is refused; one that gets in leaves the last good one in force, and is named.

    It gets in where somebody has taken the validating webhook away.
    """
    quota = f"quotas: [{{namespace: {here.namespace}, requests: {{cpu: 20}}}}]\n"
    set_policy(here.world, policy + quota)
    here.submit("mnist", low=1, high=10)
    here.wait_running("mnist", 4, 6)
    with pytest.raises(Invalid, match="quotes: unknown field"):
        set_policy(here.world, policy + "quotes: []\n")
    found = here.world.send(request.get(VALIDATINGWEBHOOKS, None, WEBHOOK))
    here.world.send(request.delete(VALIDATINGWEBHOOKS, None, WEBHOOK))
    try:
        until("the webhook is out of the way", lambda: accepted(here.world, policy), bool, 10)
        said = {room: until_error(here.world, room) for room in ROOMS}
        held = len(here.trainers("mnist"))
    finally:
        kept = {"name": WEBHOOK, "labels": found["metadata"]["labels"]}
        restored = {"metadata": kept, "webhooks": found["webhooks"]}
        here.world.send(request.create(VALIDATINGWEBHOOKS, None, restored))
        until("the webhook is back", lambda: accepted(here.world, policy), lambda so: not so, 10)

    set_policy(here.world, policy)
    here.wait_running("mnist", 10, 6)

    assert held == 4
    assert all("quotes: unknown field" in text for text in said.values())
    assert {str(readiness(here.world.edl.url(room))["policy"]["error"]) for room in ROOMS} == {""}


def accepted(found: World, policy: str) -> bool:
    """Whether a bad policy gets in."""
    try:
        set_policy(found, policy + "quotes: []\n")
    except Invalid:
        return False
    return True


def until_error(found: World, room: str) -> str:
    """What a room says about the policy in the cluster, once it has seen it."""
    return until(
        f"{room} names the bad policy",
        lambda: str(readiness(found.edl.url(room))["policy"]["error"]),
        bool,
        5,
    )
