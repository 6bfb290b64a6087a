"""`python -m bench.cold NODES SEED`: measures one plan in a fresh process, as JSON.

It needs its own process, because peak memory is a property of the process and never decreases.
"""

import sys
from time import perf_counter

import orjson

from bench.clusters import NOW_S, cluster, policy
from e2e.measure.processes import peak_mb
from policy.cluster.cluster_state import ClusterState
from policy.planning.planner import plan


def measure(nodes: int, seed: int) -> dict[str, float]:
    """Measures seconds of state and plan, and peak memory in MB with records and interpreter.

    MB means MiB here, as in `kubectl top`.
    """
    snapshot = cluster(nodes, seed)
    records_mb = peak_mb()
    begun_s = perf_counter()
    state = ClusterState.of(snapshot)
    built_s = perf_counter()
    full_plan = plan(state, policy(), NOW_S)
    done_s = perf_counter()
    return {
        "index_seconds": built_s - begun_s,
        "plan_seconds": done_s - built_s,
        "records_mb": records_mb,
        "peak_mb": peak_mb(),
        "jobs_planned": len(full_plan.jobs),
        "creates": sum(create.count for create in full_plan.creates),
        "releases": len(full_plan.releases),
    }


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
