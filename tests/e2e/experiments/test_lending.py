"""An owner's demand on the demo's cluster in virtual time: what the load of a machine cannot blur."""

import pytest

from e2e.experiments.virtual import workload_of
from e2e.workload import FULL, QUICK, Scenario
from policy.cluster.snapshot import Phase
from policy.document.model import Policy, Reserve
from policy.document.queue_model import Queue
from simulator.run import play
from simulator.workload import Arrival, Workload
from tests.support.builders import job

_BAR_S = 5.0
_OWNER_AT_S, _END_S = 90.0, 100.0
_CPU = 5


@pytest.mark.parametrize(
    ("scenario", "part"), [(QUICK, 2), pytest.param(FULL, 8, marks=pytest.mark.soak)]
)
def test_an_owner_has_its_share_within_five_seconds(scenario: Scenario, part: int) -> None:
    """The other queue has borrowed the whole cluster; what the owner has of it runs then.

    That is half of a small cluster. On 133 nodes it is an eighth: evictions and creations take their
    time there (docs/performance.md).
    """
    nodes = workload_of(scenario).nodes
    places = sum(node.allocatable["cpu"] // (1000 * _CPU) for node in nodes)
    owned = places // part
    queues = tuple(
        Queue(name=name, namespaces=("*",), nominal_quota={"cpu": str(_CPU * count)})
        for name, count in {"borrower": places - owned, "owner": owned}.items()
    )
    borrower = job("borrower", 2, places, cpu=_CPU, queue="borrower")
    owner = job("owner", 2, owned, cpu=_CPU, queue="owner")
    arrivals = (Arrival(0.0, job=borrower), Arrival(_OWNER_AT_S, job=owner))

    changes = play(
        Workload(nodes, arrivals, _END_S), Policy(reserve=Reserve(max_load={}), queues=queues)
    )

    running: dict[str, set[str]] = {"borrower": set(), "owner": set()}
    lent, served_s = 0, _END_S
    for change in changes:
        pod = change.new
        runs = pod is not None and pod.phase is Phase.RUNNING and not pod.deleting
        trainers = running[change.pod.job]
        (trainers.add if runs else trainers.discard)(change.pod.uid)
        if change.at_s < _OWNER_AT_S:
            lent = len(running["borrower"])
        elif len(running["owner"]) == owned:
            served_s = min(served_s, change.at_s)
    assert lent == places
    assert served_s - _OWNER_AT_S <= _BAR_S
