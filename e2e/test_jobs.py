"""Actions of users and admins on elastic Jobs, on a real control plane with EDL beside it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from e2e import commands
from e2e.cluster.nodes import node
from e2e.control_plane import EDL_COMPONENTS
from e2e.environment import SLOTS, Environment, IsolatedNamespace, readiness
from e2e.measure.processes import cpu_seconds
from e2e.waiting import until
from kube import record_log, request
from kube.errors import Invalid
from kube.request import CONFIGMAPS, NODES, PODDISRUPTIONBUDGETS, PODS, VALIDATINGWEBHOOKS
from policy.cluster.snapshot import Phase
from policy.names import Tier
from policy.records import Record
from reconciler.jobs.status import WAITING

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

KUBECTL_S = 30.0
WAIT_S = 30.0
"""Ends a hang: what is to be fast has a limit of its own."""
SOON_S = 10.0
"""Less than a trainer's age from which it is moved to another job without need."""
QUIET_S = 12.0
"""Longer than two slow ticks of the reconciler."""
WEBHOOK = "edl-webhook"
MODEL = Path(__file__).parents[1] / "examples/models/digits_numpy.py"


def kubectl(namespace: IsolatedNamespace, *words: str) -> str:
    """Returns the output of the cluster's kubectl."""
    cluster, where = namespace.environment.cluster, ("-n", namespace.name)
    done = commands.kubectl(cluster, *where, *words, timeout_s=KUBECTL_S + 5)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_starts_with_minimum_and_grows(namespace: IsolatedNamespace) -> None:
    """A Job starts at once with its guaranteed trainers and grows into what is free."""
    namespace.submit("mnist", low=2, high=20)
    until("the minimum runs", lambda: namespace.running("mnist"), lambda n: n >= 2, SOON_S)
    namespace.wait_running("mnist", 20, WAIT_S)

    def counts() -> tuple[int, int]:
        status = namespace.job("mnist").status
        return status.active, status.ready

    until(
        "the Job's status says so", counts, lambda status_counts: status_counts == (20, 20), WAIT_S
    )
    job = namespace.wait_exact("mnist")
    guaranteed = sorted(
        pod.trainer_id for pod in namespace.trainers("mnist") if pod.tier is Tier.GUARANTEED
    )

    assert job.managed
    assert guaranteed == [0, 1]
    assert job.accounting.next_id == 20


def test_services_take_and_give_back(namespace: IsolatedNamespace) -> None:
    """A burst of services runs within 6 s on a full cluster; when it leaves, trainers return.

    None of the trainers that gave way counts as a failure, even where one failure is too many.
    """
    namespace.submit("mnist", low=2, high=SLOTS, spec={"backoffLimit": 0})
    namespace.wait_running("mnist", SLOTS, WAIT_S)
    namespace.services(40)
    took_s = namespace.wait_services(40, 15)
    meanwhile = namespace.running("mnist")
    time.sleep(2.0)  # nodes still cool down when the services leave: that must wedge no trainer
    namespace.services(0)
    namespace.wait_running("mnist", SLOTS, WAIT_S)

    job = namespace.wait_exact("mnist")

    print(f"40 services run after {took_s:.1f} s, {meanwhile} trainers stayed")
    assert took_s <= 6.0
    assert meanwhile >= 2
    assert job.status.failed == 0
    assert job.accounting.disrupted + job.accounting.released == job.accounting.next_id - SLOTS


def test_new_job_takes_surplus_at_once(namespace: IsolatedNamespace) -> None:
    """The guaranteed trainers of a new Job run at once on a cluster that others fill."""
    namespace.submit("old", low=2, high=SLOTS)
    namespace.wait_running("old", SLOTS, WAIT_S)
    namespace.submit("new", low=6, high=12)

    def guaranteed() -> list[Phase]:
        return [pod.phase for pod in namespace.trainers("new") if pod.tier is Tier.GUARANTEED]

    until("the minimum runs", guaranteed, lambda phases: phases == [Phase.RUNNING] * 6, SOON_S)

    assert namespace.running("old") >= 2
    namespace.wait_exact("old")
    namespace.wait_exact("new")


def test_bounds_are_edited(namespace: IsolatedNamespace) -> None:
    """A higher maximum lets a running Job grow, a lower one makes it shrink, a minimum rises."""
    namespace.submit("mnist", low=2, high=4)
    namespace.wait_running("mnist", 4, WAIT_S)
    namespace.edit("mnist", {"metadata": {"annotations": {"edl.training/max-trainers": "9"}}})
    namespace.wait_running("mnist", 9, WAIT_S)
    namespace.edit("mnist", {"metadata": {"annotations": {"edl.training/max-trainers": "3"}}})
    namespace.wait_running("mnist", 3, WAIT_S)
    namespace.edit("mnist", {"metadata": {"annotations": {"edl.training/min-trainers": "3"}}})

    def guaranteed() -> int:
        return sum(pod.tier is Tier.GUARANTEED for pod in namespace.trainers("mnist"))

    until("3 are guaranteed", guaranteed, lambda n: n == 3, WAIT_S)
    job = namespace.wait_exact("mnist")

    assert job.accounting.released == job.accounting.next_id - 3
    until("an event", lambda: namespace.events("mnist", "TrainersReleased"), bool, WAIT_S)


def test_suspend_and_resume(namespace: IsolatedNamespace) -> None:
    """A suspended Job has no trainers and says so; resumed, it has them again under new ids."""
    namespace.submit("mnist", low=2, high=4)
    namespace.wait_running("mnist", 4, WAIT_S)
    namespace.edit("mnist", {"spec": {"suspend": True}})
    namespace.wait_running("mnist", 0, WAIT_S)
    reason = namespace.wait_condition("mnist", "Suspended", WAIT_S)
    namespace.edit("mnist", {"spec": {"suspend": False}})
    namespace.wait_running("mnist", 4, WAIT_S)

    def suspended() -> list[str]:
        conditions = namespace.job("mnist").status.conditions
        return [c.status for c in conditions if c.type == "Suspended"]

    until("it says that it is resumed", suspended, lambda texts: texts == ["False"], WAIT_S)
    job = namespace.wait_exact("mnist")

    assert reason == "JobSuspended"
    assert job.accounting.released == 4
    assert job.accounting.open == frozenset(range(4, 8))


def test_success_is_complete(namespace: IsolatedNamespace) -> None:
    """A Job whose trainers succeed is Complete for kubectl, and no trainer is made again."""
    namespace.submit("mnist", low=2, high=5, pod_annotations={"edl.training/kwok-run-time": "4s"})

    output = kubectl(
        namespace, "wait", "--for=condition=complete", "job/mnist", f"--timeout={KUBECTL_S:.0f}s"
    )
    table = kubectl(namespace, "get", "jobs")
    job = namespace.wait_exact("mnist")

    assert "condition met" in output
    assert "Complete" in table
    assert job.status.completion_s > job.status.start_s > 0
    assert job.accounting.succeeded == job.status.succeeded == job.accounting.next_id
    assert not job.accounting.open


def submit_model(namespace: IsolatedNamespace) -> commands.Done:
    """`edl submit --apply` with the cluster's own kubectl, as a user calls it."""
    words = ["--name", "digits", "--image", "my/paddle", "--min", "2", "--max", "3", "--apply"]
    words += ["--data", "/data/train.npz", "--namespace", namespace.name]
    cluster = namespace.environment.cluster
    return commands.edl(cluster, namespace.name, "submit", str(MODEL), *words)


def test_a_model_file_becomes_a_job(namespace: IsolatedNamespace) -> None:
    """`edl submit --apply` makes a Job whose trainers run; its file goes with it when it goes."""
    done, again = submit_model(namespace), submit_model(namespace)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "job digits submitted with 2 to 3 trainers\n"
    assert again.returncode == 2
    assert again.stderr.startswith("edl: kubectl refused Job digits: Error from server (AlreadyEx")
    assert again.stderr.count("\n") == 1
    namespace.wait_running("digits", 3, WAIT_S)
    (trainer, *_) = namespace.environment.send(request.list_page(PODS, namespace.name))["items"]
    volumes = {volume["name"]: volume for volume in trainer["spec"]["volumes"]}
    name = next(volume["configMap"]["name"] for volume in volumes.values() if "configMap" in volume)
    config_map = namespace.environment.send(request.get(CONFIGMAPS, namespace.name, name))
    assert config_map["data"] == {MODEL.name: MODEL.read_text()}
    kubectl(namespace, "delete", "job", "digits", "--wait=false")

    def remaining_objects() -> list[str]:
        config_maps = namespace.environment.send(request.list_page(CONFIGMAPS, namespace.name))[
            "items"
        ]
        return [config_map["metadata"]["name"] for config_map in config_maps]

    until("the file is gone", remaining_objects, lambda names: name not in names, WAIT_S)


def test_failures_end_in_backoff_limit(namespace: IsolatedNamespace) -> None:
    """Failing trainers are counted, made again after a pause, and end the Job above its limit."""
    namespace.submit(
        "mnist",
        low=1,
        high=1,
        spec={"backoffLimit": 1},
        pod_annotations={"edl.training/kwok-fail-after": "1s"},
    )
    until("a failure", lambda: namespace.job("mnist").status.failed, bool, WAIT_S)
    events = until("an event", lambda: namespace.events("mnist", "BackingOff"), bool, WAIT_S)
    reason = namespace.wait_condition("mnist", "Failed", WAIT_S)

    job = namespace.wait_exact("mnist")
    first_s, second_s = sorted(
        pod.created_s for pod in namespace.environment.pods.ever(namespace.name)
    )

    assert reason == "BackoffLimitExceeded"
    assert "logs of the failed trainers" in events[0]["message"]
    assert second_s - first_s > 5.0
    assert (job.status.failed, job.accounting.next_id, job.status.active) == (2, 2, 0)


def test_evicted_trainer_is_no_failure(namespace: IsolatedNamespace) -> None:
    """An evicted or deleted trainer is created again, though one failure would end the Job."""
    namespace.submit("mnist", low=2, high=4, spec={"backoffLimit": 0})
    namespace.wait_running("mnist", 4, WAIT_S)
    namespace.wait_exact("mnist")
    namespace.environment.send(request.evict(namespace.name, "mnist-trainer-3"))
    kubectl(namespace, "delete", "pod", "mnist-trainer-0", "--wait=false")
    until(
        "both left",
        lambda: namespace.environment.pods.stopped_trainers(namespace.name),
        lambda names: len(names) == 2,
        WAIT_S,
    )
    namespace.wait_running("mnist", 4, WAIT_S)

    job = namespace.wait_exact("mnist")

    assert (job.status.failed, job.accounting.disrupted) == (0, 2)
    assert job.accounting.open == {1, 2, 4, 5}


def test_deleting_removes_everything(namespace: IsolatedNamespace) -> None:
    """With the Job go its trainers and its budget, as owner references promise."""
    namespace.submit("mnist", low=2, high=4)
    namespace.wait_running("mnist", 4, WAIT_S)
    budgets = request.list_page(PODDISRUPTIONBUDGETS, namespace.name)

    def remaining_objects() -> tuple[int, int]:
        stored_budgets = namespace.environment.send(budgets)["items"]
        return len(namespace.environment.pods.now(namespace.name)), len(stored_budgets)

    until("the budget is there", remaining_objects, lambda counts: counts == (4, 1), WAIT_S)
    kubectl(namespace, "delete", "job", "mnist", "--wait=false")

    until("nothing is left", remaining_objects, lambda counts: counts == (0, 0), WAIT_S)
    trainer_names = {pod.name for pod in namespace.environment.pods.ever(namespace.name)}
    assert trainer_names == {f"mnist-trainer-{number}" for number in range(4)}


def test_deadline_ends_the_job(namespace: IsolatedNamespace) -> None:
    """A Job that runs longer than activeDeadlineSeconds loses its trainers and is Failed."""
    namespace.submit("mnist", low=2, high=4, spec={"activeDeadlineSeconds": 10})
    namespace.wait_running("mnist", 4, 10)

    reason = namespace.wait_condition("mnist", "Failed", WAIT_S)
    job = namespace.wait_exact("mnist")

    assert reason == "DeadlineExceeded"
    assert (job.status.active, job.status.failed) == (0, 0)


def test_job_that_fits_no_node_says_so(namespace: IsolatedNamespace) -> None:
    """A trainer larger than every node waits in peace, and starts when a node is large enough.

    The Job's status, an event and the reconciler's records say the same, with figures and a way
    out; nothing is tried in the meantime.
    """
    namespace.submit("giant", low=1, high=2, cpu="100")
    code = until(
        "the API server has answered what it makes of a trainer",
        lambda: namespace.wait_condition("giant", WAITING, WAIT_S),
        lambda reason: reason != "Checking",
        WAIT_S,
    )
    events = until("an event", lambda: namespace.events("giant", code), bool, WAIT_S)
    (waiting_message,) = [
        c.message for c in namespace.job("giant").status.conditions if c.type == WAITING
    ]
    version = namespace.job("giant").resource_version
    begun_s = cpu_seconds(namespace.environment.control_plane.pids["reconciler"])
    time.sleep(QUIET_S)
    used_s = cpu_seconds(namespace.environment.control_plane.pids["reconciler"]) - begun_s
    record = until(
        "the decision is recorded",
        lambda: recorded(namespace, "job "),
        lambda records: bool(records) and records[-1].code == code,
        WAIT_S,
    )[-1]

    print(f"the reconciler used {used_s:.2f} CPU seconds in {QUIET_S:.0f} s of waiting")
    assert code == record.code == "FitsNoNode"
    assert record.text == waiting_message
    assert "100 cpu" in waiting_message
    assert "18 cpu" in waiting_message
    assert events[0]["type"] == "Warning"
    assert waiting_message in events[0]["message"]
    assert "lower the trainers' requests" in events[0]["message"]
    assert used_s < QUIET_S * 0.05
    assert namespace.job("giant").resource_version == version
    assert len(namespace.events("giant", code)) == 1
    assert not namespace.environment.pods.ever(namespace.name)

    with large_node(namespace):
        namespace.wait_running("giant", 1, WAIT_S)
        namespace.wait_exact("giant")
        (over,) = [c for c in namespace.job("giant").status.conditions if c.type == WAITING]
        kubectl(namespace, "delete", "job", "giant", "--wait=false")
        remaining = namespace.environment.pods
        until("it is gone", lambda: remaining.now(namespace.name), lambda pods: not pods, WAIT_S)
    assert (over.status, over.reason) == ("False", "Started")


def test_who_asks_why_gets_the_records(namespace: IsolatedNamespace) -> None:
    """Of a job at its maximum, and of a trainer that it gave up."""
    namespace.submit("mnist", low=1, high=4)
    namespace.wait_running("mnist", 4, WAIT_S)
    namespace.edit("mnist", {"metadata": {"annotations": {"edl.training/max-trainers": "3"}}})
    namespace.wait_running("mnist", 3, WAIT_S)

    (given_up,) = until(
        "the release is recorded", lambda: recorded(namespace, "pod "), bool, WAIT_S
    )
    assert given_up.code == "AboveMax"
    assert given_up.figures["node"].startswith("node-")
    assert recorded(namespace, "job ")[-1].code == "AtMax"


@contextmanager
def large_node(namespace: IsolatedNamespace) -> Iterator[None]:
    """A node of 128 CPU joins for as long as the block lasts."""
    namespace.environment.send(request.create(NODES, None, node("large", cpu="128")))
    try:
        yield
    finally:
        namespace.environment.send(request.delete(NODES, None, "large"))


def recorded(namespace: IsolatedNamespace, about: str) -> list[Record]:
    """Returns the namespace's records in the decision log about a kind of object, oldest first."""
    records = record_log.read(namespace.environment.api, namespace.name)
    return [record for record in records if record.about.startswith(about)]


def test_policy_is_edited_live(namespace: IsolatedNamespace, policy: str) -> None:
    """A new quota takes trainers away within 2 s, and gives them back when it is lifted."""
    namespace.submit("mnist", low=1, high=10)
    namespace.wait_running("mnist", 10, WAIT_S)
    quota = f"quotas: [{{namespace: {namespace.name}, requests: {{cpu: 20}}}}]\n"
    namespace.environment.set_policy(policy + quota)
    until("4 stay", lambda: len(namespace.trainers("mnist")), lambda n: n == 4, 2)
    namespace.environment.set_policy(policy)

    namespace.wait_running("mnist", 10, WAIT_S)
    namespace.wait_exact("mnist")


def test_bad_policy_never_rules(namespace: IsolatedNamespace, policy: str) -> None:
    """A bad policy is refused; one that gets in leaves the last good one in force, and is named.

    It is accepted if the validating webhook was removed.
    """
    quota = f"quotas: [{{namespace: {namespace.name}, requests: {{cpu: 20}}}}]\n"
    namespace.environment.set_policy(policy + quota)
    namespace.submit("mnist", low=1, high=10)
    namespace.wait_running("mnist", 4, WAIT_S)
    with pytest.raises(Invalid, match="quotes: unknown field"):
        namespace.environment.set_policy(policy + "quotes: []\n")
    configuration = namespace.environment.send(request.get(VALIDATINGWEBHOOKS, None, WEBHOOK))
    namespace.environment.send(request.delete(VALIDATINGWEBHOOKS, None, WEBHOOK))
    try:
        until(
            "the webhook is out of the way",
            lambda: accepted(namespace.environment, policy),
            bool,
            WAIT_S,
        )
        errors = {
            component: until_error(namespace.environment, component) for component in EDL_COMPONENTS
        }
        trainers_before = len(namespace.trainers("mnist"))
    finally:
        metadata = {"name": WEBHOOK, "labels": configuration["metadata"]["labels"]}
        restored = {"metadata": metadata, "webhooks": configuration["webhooks"]}
        namespace.environment.send(request.create(VALIDATINGWEBHOOKS, None, restored))
        until(
            "the webhook is back",
            lambda: accepted(namespace.environment, policy),
            lambda so: not so,
            WAIT_S,
        )

    namespace.environment.set_policy(policy)
    namespace.wait_running("mnist", 10, WAIT_S)

    assert trainers_before == 4
    assert all("quotes: unknown field" in text for text in errors.values())
    for component in EDL_COMPONENTS:
        until(
            f"{component} has the good policy",
            partial(policy_error, namespace.environment, component),
            lambda error: not error,
            WAIT_S,
        )


def accepted(environment: Environment, policy: str) -> bool:
    """Returns whether a bad policy gets in."""
    try:
        environment.set_policy(policy + "quotes: []\n")
    except Invalid:
        return False
    return True


def policy_error(environment: Environment, component: str) -> str:
    """Returns a component's report about the policy in the cluster."""
    answer = readiness(environment.control_plane.probe_url(component))
    return str(answer["policy"]["error"])


def until_error(environment: Environment, component: str) -> str:
    """Returns the same, once it has seen it."""
    error = partial(policy_error, environment, component)
    return until(f"{component} names the bad policy", error, bool, WAIT_S)
