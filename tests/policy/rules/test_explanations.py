"""What people read in conditions and events, and the figures in it."""

from dataclasses import dataclass, replace

import pytest

from policy.model import Policy, Reserve, Sizes
from policy.plan import Plan
from policy.planner import plan
from policy.queue_model import Quota
from policy.snapshot import Job, Node, Phase, Pod, TrainerAccounting
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
        (_case(_A, 9, 90), "AtMax: it has all of its 9 trainers"),
        (
            _case(_A, 2, 90, _sizes(2, 50)),
            "AtCeiling: no allowed number of trainers lies between 2 and 9",
        ),
        (_case(_A, 2, 10), "NoRoom: no node has room for one more trainer (5 cpu)"),
        (
            _case(_A, 2, 40, _load(0.25)),
            "ReserveHeld: 10 cpu of 10 are in use; more is kept free for services",
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
            "QuotaReached: the quota of namespace ml allows cpu 12, 3 too little",
        ),
        (
            _case(job("a", 1, 40), 0, 300),
            "Growing: 8 trainers of all jobs are being scheduled, enough for now",
        ),
        (
            _case(job("a", 3, 3, cpu=8), 0, 20),
            "WaitingForRoom: no room for 1 guaranteed trainers (8 cpu each)",
        ),
        (
            Case(_LARGE, (), _TWO_NODES),
            (
                "FitsNoNode: a trainer asks for 50 cpu, 8Gi memory; of 2 nodes that it may use,"
                " the largest has 20 cpu, 128Gi memory"
            ),
        ),
        (
            Case(job("even", 3, 3, cpu=15, memory=100), (), _TWO_NODES),
            (
                "FitsNoNode: a trainer asks for 15 cpu, 100Gi memory; of 2 nodes that it may use,"
                " the largest has 20 cpu, 128Gi memory"
            ),
        ),
        (
            Case(_GPU, (), _TWO_NODES),
            (
                "FitsNoNode: a trainer asks for 5 cpu, 1 nvidia.com/gpu; of 2 nodes that it may"
                " use, the largest has 20 cpu, 0 nvidia.com/gpu"
            ),
        ),
        (
            Case(_A, (), ()),
            "FitsNoNode: a trainer asks for 5 cpu, and there is no node it may use",
        ),
        (_case(replace(_A, suspended=True), 0, 5), "Suspended: spec.suspend is true"),
        (_case(replace(_A, error="min is 5"), 0, 5), "Invalid: min is 5"),
        (
            _case(replace(_A, accounting=TrainerAccounting(succeeded=2)), 0, 5),
            "Ending: trainers that finished the work: 2",
        ),
        (_case(_A, 0, 5, beside=(_DONE,)), "Ending: trainers that finished the work: 1"),
        (
            _case(replace(_A, deleting=True), 0, 5),
            "Ending: the job is over or being deleted",
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
            "SizeNotAllowed: 3 live, and 2 is the next allowed number below",
        ),
        (_case(replace(_A, max_trainers=3), 4, 30), "AboveMax: 4 live, 3 wanted"),
        (_case(replace(_A, suspended=True), 1, 30), "JobStopped: 1 live, 0 wanted"),
        (_case(_A, 2, 10, beside=(service("s", 5),)), "ServicesFirst: shop/s waits for 5 cpu"),
        (
            _case(_A, 4, 30, _load(0.5)),
            "ReserveRestored: 20 cpu in use, 15 allowed by the reserve",
        ),
        (
            _case(_A, 1, 5, beside=(trainer(_A, 5, created_s=NOW_S - 7),)),
            "NotScheduled: no node had room for 7 s",
        ),
    ],
)
def test_a_trainer_that_goes_says_why(case: Case, expected: str) -> None:
    """In the event of its pod."""
    (release,) = case.plan.releases

    assert f"{release.reason}: {release.detail}" == expected
