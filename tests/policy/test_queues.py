"""Queues and weights are a tenant's word: the policy says what of it counts."""

from typing import Any

import pytest

from policy.cluster.cluster_state import ClusterState
from policy.cluster.queues import QueueRules
from policy.cluster.snapshot import Job
from policy.document import parser as document
from policy.document.model import Fairness, Policy, Reserve
from policy.document.queue_model import Queue, Quota
from policy.errors import DocumentError, JobError
from policy.planning.plan import Plan
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import NOW_S, job, node, trainers

_QUEUES = (
    Queue(name="gold", namespaces=("team-a", "lab-*"), max_weight=5),
    Queue(name="bronze", namespaces=("*",), default=True),
)
_LISTED = Policy(reserve=Reserve(max_load={}), queues=_QUEUES, fairness=Fairness(max_weight=2))


def _plan(policy: Policy, *jobs: Job) -> Plan:
    cluster = ClusterState()
    cluster.queues = QueueRules.of(policy)
    cluster.put_node(node("n0", 40))
    for owner in jobs:
        cluster.put_job(owner)
    return plan(cluster, policy, NOW_S)


def _annotations(**values: Any) -> dict[str, str]:
    return {f"edl.training/{name}": str(value) for name, value in values.items()}


def test_a_job_without_a_queue_is_in_that_of_its_namespace() -> None:
    """Saying nothing does not escape the queue's quota."""
    quota = Quota(queue="bronze", requests={"cpu": "10"})
    policy = _LISTED.model_copy(update={"quotas": (quota,)})

    new_plan = _plan(policy, job("a", 1, 9, cpu=5))

    assert sum(create.count for create in new_plan.creates) == 2


def test_a_queue_of_others_is_refused_with_the_way_out() -> None:
    """The Job gets no trainers, and its condition says what to write."""
    new_plan = _plan(_LISTED, job("a", 1, 9, queue="gold"))

    assert not new_plan.creates
    assert new_plan.jobs[0].reason is Reason.INVALID
    assert new_plan.jobs[0].detail == (
        "edl.training/queue is 'gold', a queue that the cluster's policy does not give to "
        "namespace ml: write bronze, or leave it out"
    )


def test_trainers_of_a_job_in_a_queue_of_others_count_in_its_own() -> None:
    """They stay, and use up no quota of the others."""
    cluster = ClusterState()
    cluster.queues = QueueRules.of(_LISTED)
    owner = job("a", 1, 9, queue="gold")
    cluster.put_job(owner)
    cluster.put_job(cluster.jobs[owner.key])
    cluster.put_node(node("n0", 40))
    for pod in trainers(owner, ["n0"]):
        cluster.put_pod(pod)

    assert cluster.jobs[owner.key].queue == "bronze"
    assert plan(cluster, _LISTED, NOW_S).empty


def test_a_weight_counts_up_to_the_highest() -> None:
    """That of the queue, or else that of all; a thousand made seven of eight trainers."""
    rules = QueueRules.of(_LISTED)
    heavy: dict[str, Any] = {"weight": 1000, "namespace": "lab-1"}

    assert rules.applied(job("a", queue="gold", **heavy)).weight == 5
    assert rules.applied(job("a", **heavy)).weight == 2
    assert rules.applied(job("a", weight=2, queue="bronze")).weight == 2


def test_without_lists_every_queue_and_weight_counts_as_before() -> None:
    """Stored policies keep their meaning."""
    owner = job("a", queue="any", weight=1000)

    assert QueueRules.of(Policy()).applied(owner) is owner
    QueueRules.of(Policy()).check("ml", _annotations(queue="any", weight=1000))


@pytest.mark.parametrize(
    ("namespace", "annotations", "message"),
    [
        ("ml", _annotations(queue="gold"), "namespace ml: write bronze, or leave it out"),
        (
            "team-a",
            _annotations(queue="silver"),
            "namespace team-a: write gold or bronze, or leave",
        ),
        ("team-a", _annotations(queue="gold", weight=6), "weight is 6.* at most 5 here"),
        ("team-a", _annotations(weight=3), "weight is 3.* at most 2 here"),
    ],
)
def test_admission_refuses_what_would_not_count(
    namespace: str, annotations: dict[str, str], message: str
) -> None:
    """In one line that names the annotation."""
    with pytest.raises(JobError, match=message):
        QueueRules.of(_LISTED).check(namespace, annotations)


def test_a_namespace_without_queues_is_told_to_name_none() -> None:
    """No queue lists it; its jobs are in none."""
    rules = QueueRules(_QUEUES[:1])

    with pytest.raises(JobError, match="namespace ml: leave it out"):
        rules.check("ml", _annotations(queue="gold"))
    rules.check("ml", {})
    rules.check("lab-9", _annotations(queue="gold", weight=5))
    assert rules.applied(job("a")).queue == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("queues: [{name: a, namespaces: [x]}, {name: a, namespaces: [y]}]", "listed twice"),
        ("queues: [{name: a, namespaces: []}]", r"queues\.0\.namespaces"),
        ("queues: [{name: a, namespaces: [x], maxWeight: 0}]", r"queues\.0\.maxWeight"),
        ("fairness: {maxWeight: 1001}", r"fairness\.maxWeight"),
    ],
)
def test_a_policy_that_says_it_wrongly_is_refused(text: str, message: str) -> None:
    """With the field."""
    with pytest.raises(DocumentError, match=message):
        document.parse(text)


def test_a_job_that_may_run_moves_into_no_queue_that_lends() -> None:
    """By its annotation or the lack of one; one without trainers may, and any other queue takes it."""
    lending = Queue(name="lending", namespaces=("ml",), nominal_quota={"cpu": "4"}, default=True)
    rules = QueueRules((lending, Queue(name="plain", namespaces=("ml",))))
    plain, named, unknown = (_annotations(queue=name) for name in ("plain", "lending", "others"))

    with pytest.raises(
        JobError, match=r"queue 'lending', which has a nominalQuota: set spec\.suspend"
    ):
        rules.check_move("ml", plain, named, may_run=True)
    with pytest.raises(JobError, match=r"set spec\.suspend to true"):
        rules.check_move("ml", plain, {}, may_run=True)
    rules.check_move("ml", plain, named, may_run=False)
    rules.check_move("ml", named, plain, may_run=True)
    rules.check_move("ml", {}, named, may_run=True)
    rules.check_move("ml", unknown, named, may_run=True)  # it counts in the default queue
    QueueRules(()).check_move("ml", plain, named, may_run=True)
