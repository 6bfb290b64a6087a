"""What people read in conditions and events, and the figures in it."""

from dataclasses import dataclass, replace

import pytest

from policy.cluster.snapshot import Job, Node, Phase, Pod, TrainerAccounting
from policy.document.model import Policy, Reserve, Sizes
from policy.document.queue_model import Quota
from policy.planning.plan import Plan
from policy.planning.planner import plan
from tests.support.builders import NOW_S, cluster_state, job, node, service, trainer, trainers

_FREE = Policy(reserve=Reserve(max_load={}))
_A = job("a", 1, 9)


@dataclass(frozen=True)
class Case:
    """A cluster with one job."""

    job: Job
    pods: tuple[Pod, ...]
    nodes: tuple[Node, ...]
    policy: Policy = _FREE

    @property
    def plan(self) -> Plan:
        """What is planned for it."""
        return plan(cluster_state(self.nodes, [self.job], self.pods), self.policy, NOW_S)


def _case(
    owner: Job, running: int, cpu: float, policy: Policy = _FREE, *, beside: tuple[Pod, ...] = ()
) -> Case:
    """A cluster of one node with `cpu` CPU, and a job with `running` trainers."""
    return Case(owner, (*trainers(owner, ["n0"] * running), *beside), (node("n0", cpu),), policy)


def _sizes(*allowed: int) -> Policy:
    return Policy(reserve=_FREE.reserve, sizes=(Sizes(allowed=allowed),))


def _load(share: float) -> Policy:
    return Policy(reserve=Reserve(max_load={"cpu": share}))


_DONE = replace(trainer(_A, 1, "n0"), phase=Phase.SUCCEEDED, ready=False)
_LARGE = job("large", 3, 3, cpu=50, memory=8)
_GPU = replace(_A, requests={**_A.requests, "nvidia.com/gpu": 1})
_TWO_NODES = (node("n0", 20, memory=64), node("n1", 10, memory=128))


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (_case(_A, 9, 90), "AtMax: the job has its maximum of 9 trainers"),
        (
            _case(_A, 2, 90, _sizes(2, 50)),
            "AtCeiling: no allowed size lies above 2, up to the maximum of 9 trainers",
        ),
        (_case(_A, 2, 10), "NoRoom: no node has capacity for one more trainer (5 cpu)"),
        (
            _case(_A, 2, 40, _load(0.25)),
            "ReserveHeld: 10 of 10 cpu are in use; the reserve keeps the rest free for services",
        ),
        (
            _case(
                _A,
                2,
                40,
                Policy(
                    reserve=_FREE.reserve,
                    quotas=(Quota(namespace="ml", requests={"cpu": "12"}),),
                ),
            ),
            "QuotaReached: the quota of namespace ml (12 cpu) is 3 too small",
        ),
        (
            _case(job("a", 1, 40), 0, 300),
            "Growing: waiting for kube-scheduler to place 8 trainers first",
        ),
        (
            _case(job("a", 3, 3, cpu=8), 0, 20),
            "WaitingForRoom: no capacity for 1 guaranteed trainer (8 cpu each)",
        ),
        (
            Case(_LARGE, (), _TWO_NODES),
            (
                "FitsNoNode: a trainer requests 50 cpu, 8Gi memory; the largest of 2 nodes"
                " that it may use has 20 cpu, 128Gi memory"
            ),
        ),
        (
            Case(job("even", 3, 3, cpu=15, memory=100), (), _TWO_NODES),
            (
                "FitsNoNode: a trainer requests 15 cpu, 100Gi memory; the largest of 2 nodes"
                " that it may use has 20 cpu, 128Gi memory"
            ),
        ),
        (
            Case(_GPU, (), _TWO_NODES),
            (
                "FitsNoNode: a trainer requests 5 cpu, 1 nvidia.com/gpu; the largest of 2 nodes"
                " that it may use has 20 cpu, 0 nvidia.com/gpu"
            ),
        ),
        (
            Case(_A, (), ()),
            "FitsNoNode: a trainer requests 5 cpu, and there is no node that it may use",
        ),
        (_case(replace(_A, suspended=True), 0, 5), "Suspended: spec.suspend is true"),
        (_case(replace(_A, error="min is 5"), 0, 5), "Invalid: min is 5"),
        (
            _case(replace(_A, accounting=TrainerAccounting(succeeded=2)), 0, 5),
            "Ending: 2 trainers finished the work",
        ),
        (_case(_A, 0, 5, beside=(_DONE,)), "Ending: 1 trainer finished the work"),
        (
            _case(replace(_A, deleting=True), 0, 5),
            "Ending: the job has ended or is being deleted",
        ),
    ],
)
def test_a_job_says_why_it_has_what_it_has(case: Case, expected: str) -> None:
    """With the figures that an admin can act on."""
    (about,) = case.plan.jobs

    assert f"{about.reason}: {about.detail}" == expected


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (
            _case(_A, 3, 18, _sizes(2, 4, 8)),
            "SizeNotAllowed: 3 trainers is not an allowed size; the next smaller one is 2",
        ),
        (
            _case(replace(_A, max_trainers=3), 4, 30),
            "AboveMax: its job has 4 trainers and may keep 3",
        ),
        (
            _case(replace(_A, suspended=True), 1, 30),
            "JobStopped: its job is suspended, has ended or is being deleted",
        ),
        (
            _case(_A, 2, 10, beside=(service("s", 5),)),
            "ServicesFirst: shop/s needs 5 cpu",
        ),
        (
            _case(_A, 4, 30, _load(0.5)),
            "ReserveRestored: 20 cpu are in use; the reserve allows 15",
        ),
        (
            _case(_A, 1, 5, beside=(trainer(_A, 5, created_s=NOW_S - 7),)),
            "NotScheduled: no node had capacity for 7 s",
        ),
    ],
)
def test_a_trainer_that_goes_says_why(case: Case, expected: str) -> None:
    """In the event of its pod."""
    (release,) = case.plan.releases

    assert f"{release.reason}: {release.detail}" == expected
