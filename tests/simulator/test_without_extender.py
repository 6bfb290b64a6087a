"""A cluster whose kube-scheduler does not know EDL's extender, in virtual time."""

from policy.document.model import Policy, Reserve
from policy.names import Role
from simulator.cluster import DisruptionReason
from simulator.run import play
from simulator.workload import Arrival, Workload
from tests.support.builders import job, node, support

_POLICY = Policy(reserve=Reserve(max_load={}))


def test_who_came_last_does_not_pay_for_the_next() -> None:
    """The servers of a third job end trainers of the first, which has thirty, and not the newest of the second.

    kube-scheduler prefers the youngest among equal priorities: these are the ten that the second job has got.
    """
    jobs = [job(name, 2, 30) for name in ("first", "second", "third")]
    servers = tuple(support(jobs[2], f"third-ps-{number}", cpu=5) for number in range(5))
    arrivals = (
        Arrival(0.0, job=jobs[0]),
        Arrival(4.0, job=jobs[1]),
        Arrival(8.0, servers, jobs[2]),
    )
    nodes = tuple(node(f"n{number}", 5) for number in range(40))
    changes = play(Workload(nodes, arrivals, 12.0), _POLICY, extender=False)

    preempted = [
        change.pod.job
        for change in changes
        if change.disruption is DisruptionReason.PREEMPTED and change.deleted
    ]
    assert preempted == ["first"] * (len(servers) + jobs[2].min_trainers)
    running = {
        c.pod.uid for c in changes if c.new and c.new.node and c.pod.role is not Role.TRAINER
    }
    assert len(running) == len(servers)
