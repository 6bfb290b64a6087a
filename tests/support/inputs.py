"""Strategies for all that a plan depends on: rich clusters with the memory of plans before."""

from dataclasses import replace

from hypothesis import strategies as st

from policy.cluster.first_seen import OwnTimes
from policy.document.model import Admission, AdmissionOrder, Autoscaling
from policy.planning.creation_backoff import CreationBackoff
from policy.planning.demand import DemandHistory, Period, of
from policy.planning.plan import Head, Line
from policy.planning.plan_input import PlanInput
from policy.planning.recent_history import RecentHistory
from tests.support import rich
from tests.support.builders import NOW_S
from tests.support.simulate import ROUND_S, Cluster
from tests.support.strategies import Case

_MEMORY = st.tuples(st.booleans(), st.booleans(), st.booleans())


@st.composite
def inputs(draw: st.DrawFn) -> PlanInput:
    """Inputs in the midst of things: after some cycles, with what they left in the history."""
    case: Case = draw(rich.cases())
    cluster = Cluster(case.snapshot.nodes, case.snapshot.jobs, case.snapshot.pods)
    recent = RecentHistory()
    for _ in range(draw(st.integers(0, 3))):
        recent.record(cluster.round(case.policy), cluster.now_s, ROUND_S)
    state, policy = cluster.state(), case.policy
    history = recent.history(cluster.now_s)
    remembers, ordered, timed = draw(_MEMORY)
    if remembers:
        uids = sorted(job.uid for job in state.jobs.values())
        refusal = "pods is forbidden: exceeded quota: gold, requested: cpu=5, used: cpu=20, limited: cpu=22"
        key, oldest = min((job.key, job) for job in state.jobs.values())
        demand = of(oldest)._replace(queue="before")
        lately = (Period(cluster.now_s - 60, changes=2, gains=9, fewest=1, most=2),)
        history = replace(
            history,
            cooling=dict.fromkeys(sorted(state.nodes)[:1], NOW_S + 3600),
            creation_backoffs={uids[0]: CreationBackoff(2, NOW_S, NOW_S + 3600, 1, refusal)},
            demands={oldest.uid: DemandHistory(demand, 0.0, lately)},
            line=Line({oldest.uid: 0.0}, Head(key, oldest.uid, NOW_S), {"ml/gone": (1, NOW_S)}),
            tainted_since={("n0", "gpu"): 5.0, ("gone", "gpu"): 0.0},
        )
    if ordered:
        admission = Admission(order=AdmissionOrder.STRICT_FIFO, after_seconds=0.0)
        vacate = Autoscaling(vacate={"zone": "x*"}, vacate_after_seconds=0.0)
        policy = policy.model_copy(update={"admission": admission, "autoscaling": vacate})
    taken = PlanInput.of(state, policy, cluster.now_s, history)
    if not timed:
        return taken
    times = {pod.uid: OwnTimes(pod.created_s + 1.0) for pod in taken.snapshot.pods}
    return replace(taken, own_times=times)
