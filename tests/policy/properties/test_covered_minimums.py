"""What a change of minimums, sizes, queues and quotas never does where queues lend to each other."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from policy.cluster.live_trainers import is_surplus
from policy.document.model import Policy, Reserve
from policy.document.queue_model import Queue
from policy.names import Tier
from policy.planning.plan import Plan
from policy.planning.quotas import Quotas
from policy.reasons import Reason
from tests.support.builders import job, node
from tests.support.simulate import Cluster
from tests.support.strategies import CALM, Case, lending_cases

_ROUNDS = 150
_THRASH_ROUNDS = 50


def _guaranteed_cpu(cluster: Cluster) -> Counter[str]:
    """Queue -> CPU of guaranteed trainers that stay."""
    used = Counter[str]()
    for pod in cluster.pods.values():
        if pod.tier is Tier.GUARANTEED and not pod.deleting:
            used[cluster.jobs[f"{pod.namespace}/{pod.job}"].queue] += pod.requests["cpu"]
    return used


def _check_creations(cluster: Cluster, policy: Policy, new_plan: Plan) -> None:
    """No quota is exceeded by what grows, and no nominal quota by what becomes guaranteed."""
    quotas = Quotas(policy, cluster.state())
    for job_plan in new_plan.jobs:
        quotas.reserve(cluster.jobs[job_plan.key], job_plan.target - job_plan.live)
    for create in new_plan.creates:
        assert not quotas.exceeded(cluster.jobs[create.job])
    nominal = {q.name: 1000 * int(q.nominal_quota.get("cpu", "1000")) for q in policy.queues}
    used, leaving = _guaranteed_cpu(cluster), {release.uid for release in new_plan.releases}
    for uid in leaving & cluster.pods.keys():
        pod = cluster.pods[uid]
        if pod.tier is Tier.GUARANTEED:
            used[cluster.jobs[f"{pod.namespace}/{pod.job}"].queue] -= pod.requests["cpu"]
    for create in new_plan.creates:
        owner = cluster.jobs[create.job]
        if create.tier is Tier.GUARANTEED and owner.queue in nominal:
            used[owner.queue] += create.count * owner.requests["cpu"]
            assert used[owner.queue] <= nominal[owner.queue]


def _check_releases(cluster: Cluster, new_plan: Plan) -> None:
    """Of the guaranteed trainers that a minimum has, none is returned or moved."""
    for release in new_plan.releases:
        if release.reason in (Reason.SHARE_RETURNED, Reason.FAIR_SHARE, Reason.QUOTA_REACHED):
            pod, owner = cluster.pods[release.uid], cluster.jobs[release.job]
            left = [
                other
                for other in cluster.state().live_trainers(owner).guaranteed
                if other.uid not in {r.uid for r in new_plan.releases}
            ]
            assert is_surplus(pod) or len(left) >= owner.min_trainers


@CALM
@given(
    own=st.integers(1, 3),
    low=st.integers(1, 9),
    capacity=st.integers(12, 20),
    room=st.booleans(),
)
def test_a_raised_minimum_holds_back_nothing_from_an_owner(
    own: int, low: int, capacity: int, room: bool
) -> None:
    """What is borrowed and then called a minimum is returned in the one plan in which its owner asks."""
    nominal = 8
    queues = (
        Queue(name="a", namespaces=("*",), nominal_quota={"cpu": str(own)}),
        Queue(name="b", namespaces=("*",), nominal_quota={"cpu": str(nominal)}),
    )
    policy = Policy(reserve=Reserve(max_load={}), queues=queues)
    greedy = job("greedy", 1, 12, cpu=1, queue="a")
    cluster = Cluster([node("n0", capacity if room else own + nominal)], [greedy])
    cluster.settle(policy, _ROUNDS)
    cluster.jobs[greedy.key] = replace(greedy, min_trainers=low)
    cluster.settle(policy, _ROUNDS)
    assert _guaranteed_cpu(cluster)["a"] <= own * 1000
    owner = job("owner", 1, nominal, cpu=1, queue="b", created_s=cluster.now_s)
    cluster.jobs[owner.key] = owner

    cluster.round(policy)

    assert cluster.counts()[greedy.key] <= own
    cluster.settle(policy, _ROUNDS)
    assert cluster.counts()[owner.key] == nominal


_EDITS = ("min", "max", "sizes", "queue", "nominal", "suspend")


@st.composite
def _edits(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Kinds of changes, with the number of the job or queue and an amount."""
    edit = st.tuples(st.sampled_from(_EDITS), st.integers(0, 9), st.integers(0, 20))
    return draw(st.lists(edit, min_size=1, max_size=4))


def _edited(cluster: Cluster, policy: Policy, edit: tuple[str, int, int]) -> Policy:
    """Makes one change to a job of the cluster, or returns the policy with one."""
    what, number, amount = edit
    if what == "nominal":
        queues = list(policy.queues)
        number %= 2
        queues[number] = queues[number].model_copy(update={"nominal_quota": {"cpu": str(amount)}})
        return policy.model_copy(update={"queues": tuple(queues)})
    if not cluster.jobs:
        return policy
    edited = list(cluster.jobs.values())[number % len(cluster.jobs)]
    low, high = edited.min_trainers, edited.max_trainers
    if what == "min":
        low, high = max(1, amount), max(high, amount)
    elif what == "max":
        high = max(low, amount)
    sizes = tuple(sorted({low, high, low + amount})) if what == "sizes" else edited.sizes
    queue = "abc"[amount % 3] if what == "queue" else edited.queue
    suspended = edited.suspended != (what == "suspend")
    cluster.jobs[edited.key] = replace(
        edited,
        min_trainers=low,
        max_trainers=high,
        sizes=sizes,
        queue=queue,
        suspended=suspended,
    )
    return policy


@CALM
@given(lending_cases(), st.lists(_edits(), min_size=1, max_size=2))
def test_no_change_makes_trainers_go_round(
    case: Case, changes: list[list[tuple[str, int, int]]]
) -> None:
    """After each change the plans keep all quotas, end no guaranteed trainer, and come to rest.

    A change stops no trainer twice: at most as many as there are, and those of a full growth.
    """
    cluster = Cluster(case.snapshot.nodes, case.snapshot.jobs)
    policy = case.policy
    cluster.settle(policy, _ROUNDS)
    for edits in changes:
        for edit in edits:
            policy = _edited(cluster, policy, edit)
        stopped = cluster.stopped
        most = len(cluster.pods) + sum(owner.max_trainers for owner in cluster.jobs.values())
        for _ in range(_THRASH_ROUNDS):
            new_plan = cluster.plan(policy)
            _check_creations(cluster, policy, new_plan)
            _check_releases(cluster, new_plan)
            before = cluster.pods.copy()
            cluster.round(policy)
            if new_plan.empty and cluster.pods == before:
                break
        else:
            raise AssertionError(f"no rest: {cluster.plan(policy)}")
        assert cluster.stopped - stopped <= most


@CALM
@given(
    lending_cases(),
    st.lists(
        st.tuples(
            st.sampled_from(["min", "max", "sizes", "suspend"]),
            st.integers(0, 9),
            st.integers(0, 20),
        ),
        max_size=12,
    ),
)
def test_no_edits_of_jobs_gather_guaranteed_trainers(
    case: Case, edits: list[tuple[str, int, int]]
) -> None:
    """Whatever tenants do to minimums, whenever: those of a queue never exceed its nominal quota."""
    cluster = Cluster(case.snapshot.nodes, case.snapshot.jobs)
    nominal = {q.name: 1000 * int(q.nominal_quota.get("cpu", "1000")) for q in case.policy.queues}
    for edit in [None, *edits]:
        if edit is not None:
            _edited(cluster, case.policy, edit)
        for _ in range(2):
            cluster.round(case.policy)
            used = _guaranteed_cpu(cluster)
            assert all(used[name] <= amount for name, amount in nominal.items())


@CALM
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6)), min_size=3, max_size=9))
def test_no_turn_of_minimums_gathers_guaranteed_trainers(edits: list[tuple[int, int]]) -> None:
    """Jobs of one queue lower and raise theirs in turn, where there is much to borrow."""
    queues = (
        Queue(name="a", namespaces=("*",), nominal_quota={"cpu": "6"}),
        Queue(name="b", namespaces=("*",), nominal_quota={"cpu": "20"}),
    )
    policy = Policy(reserve=Reserve(max_load={}), queues=queues)
    jobs = [job(f"j{number}", 1, 8, cpu=1, queue="a") for number in range(3)]
    cluster = Cluster([node("n0", 40)], jobs)
    for number, low in edits:
        edited = jobs[number].key
        cluster.jobs[edited] = replace(cluster.jobs[edited], min_trainers=low)
        for _ in range(2):
            cluster.round(policy)
            assert _guaranteed_cpu(cluster)["a"] <= 6_000
