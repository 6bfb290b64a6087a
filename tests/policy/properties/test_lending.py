"""What holds where queues lend to each other, whatever the cluster is like."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from policy.cluster.live_trainers import is_surplus
from policy.document.model import Policy, Reserve, Stability
from policy.document.queue_model import Queue
from policy.planning.planner import plan
from policy.planning.quotas import Quotas
from policy.reasons import Reason
from tests.support.builders import NOW_S, cluster_state, job, node
from tests.support.simulate import Cluster
from tests.support.strategies import CALM, Case, lending_cases

_ROUNDS = 150


def _cluster(case: Case) -> Cluster:
    return Cluster(case.snapshot.nodes, case.snapshot.jobs, case.snapshot.pods)


@CALM
@given(lending_cases())
def test_no_plan_creates_above_a_quota(case: Case) -> None:
    """A queue that grew is within its borrowing limit, and all together within their quotas."""
    cluster = _cluster(case)
    for _ in range(8):
        new_plan = cluster.plan(case.policy)
        quotas = Quotas(case.policy, cluster.state())
        for job_plan in new_plan.jobs:
            quotas.reserve(cluster.jobs[job_plan.key], job_plan.target - job_plan.live)
        for create in new_plan.creates:
            assert not quotas.exceeded(cluster.jobs[create.job])
        cluster.round(case.policy)


@CALM
@given(lending_cases())
def test_minimums_stay_within_the_nominal_quota(case: Case) -> None:
    """From an empty cluster, guaranteed trainers of no queue borrow, so none has to give way."""
    cluster = Cluster(case.snapshot.nodes, case.snapshot.jobs)
    cluster.settle(case.policy, _ROUNDS)
    nominal = {q.name: 1000 * int(q.nominal_quota.get("cpu", "1000")) for q in case.policy.queues}

    claimed = Counter[str]()
    for pod in cluster.pods.values():
        queue = cluster.jobs[f"{pod.namespace}/{pod.job}"].queue
        claimed[queue] += 0 if is_surplus(pod) else pod.requests["cpu"]
    assert all(claimed[name] <= amount for name, amount in nominal.items())


@CALM
@given(lending_cases())
def test_plans_come_to_rest_where_queues_lend(case: Case) -> None:
    """No share goes round: the plan becomes empty, and few more are stopped than there were."""
    cluster = _cluster(case)
    cluster.settle(case.policy, _ROUNDS)
    for _ in range(3):
        assert cluster.round(case.policy).empty

    most = len(case.snapshot.pods) + sum(owner.max_trainers for owner in case.snapshot.jobs)
    assert cluster.stopped <= most


@CALM
@given(lending_cases())
def test_only_surplus_of_borrowers_is_returned(case: Case) -> None:
    """Never a guaranteed trainer, nor one of a queue that uses no more than its own."""
    state = cluster_state(case.snapshot.nodes, case.snapshot.jobs, case.snapshot.pods)
    borrowing = Quotas(case.policy, state).borrowing

    for release in plan(state, case.policy, NOW_S).releases:
        if release.reason is Reason.SHARE_RETURNED:
            assert is_surplus(state.pods[release.uid])
            assert borrowing.borrowed(state.jobs[release.job].queue, ["cpu"])


@CALM
@given(
    priority=st.integers(0, 1),
    others_priority=st.integers(0, 1),
    cpus=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    capacity=st.integers(8, 20),
    named=st.booleans(),
)
def test_nothing_goes_round_between_borrowers_and_queues_that_do_not_lend(
    priority: int, others_priority: int, cpus: tuple[int, int], capacity: int, named: bool
) -> None:
    """A job of no queue, or of one without a nominal quota, gives nothing to a job that would borrow.

    Growth serves it first, so what it gave would come back, and go again.
    """
    lender = Queue(name="lender", namespaces=("*",), nominal_quota={"cpu": "30"})
    borrower = Queue(
        name="b", namespaces=("*",), nominal_quota={"cpu": str(cpus[0])}, priority=priority
    )
    other = Queue(name="c", namespaces=("*",), priority=others_priority)
    policy = Policy(
        reserve=Reserve(max_load={}),
        stability=Stability(gain_threshold=0.0),
        queues=(lender, borrower, other),
    )
    jobs = [
        job("borrower", 1, 10, cpu=cpus[0], queue="b"),
        job("other", 1, 10, cpu=cpus[1], queue="c" if named else ""),
    ]
    cluster = Cluster([node("n0", capacity)], jobs)
    cluster.settle(policy, 20)

    assert cluster.round(policy).empty
    assert cluster.stopped == 0


@CALM
@given(
    nominal=st.tuples(st.integers(8, 30), st.integers(8, 30)),
    cpus=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    wanted=st.integers(1, 20),
    spare=st.integers(0, 20),
)
def test_a_borrowed_share_is_returned_within_one_plan(
    nominal: tuple[int, int], cpus: tuple[int, int], wanted: int, spare: int
) -> None:
    """Once the owner asks, one plan releases all that it can use of its own, and not much more.

    Whether nodes are full or only the quotas are used up; at rest the owner has its part.
    """
    queues = [
        Queue(name=name, namespaces=("*",), nominal_quota={"cpu": str(amount)})
        for name, amount in zip("ab", nominal, strict=True)
    ]
    policy = Policy(reserve=Reserve(max_load={}), queues=tuple(queues))
    owner = job("owner", 1, wanted, cpu=cpus[0], queue="a")
    borrower = job("borrower", 1, 100, cpu=cpus[1], queue="b")
    cluster = Cluster([node("n0", sum(nominal) + spare)], [borrower])
    cluster.settle(policy, _ROUNDS)
    cluster.jobs[owner.key] = replace(owner, created_s=cluster.now_s)

    new_plan = cluster.round(policy)

    mine = min(wanted, nominal[0] // cpus[0])
    used = sum(pod.requests["cpu"] for pod in cluster.pods.values() if not pod.deleting)
    there = next(j.target for j in new_plan.jobs if j.key == owner.key)
    assert there >= 1
    left = sum(nominal) * 1000 - used
    assert (mine - there) * cpus[0] * 1000 <= left
    cluster.settle(policy, _ROUNDS)
    counts = cluster.counts()
    assert counts[owner.key] >= mine
    assert counts[borrower.key] * cpus[1] > min(nominal[1], 100 * cpus[1]) - cpus[1]
