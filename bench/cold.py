"""`python -m bench.cold NODES SEED`: one plan from nothing, in a process of its own, as JSON.

A process of its own, because the peak of memory is one of the process and never goes down.
"""

import sys
from pathlib import Path
from time import perf_counter

import orjson

from bench.clusters import NOW_S, cluster, policy
from policy.elasticity import plan
from policy.index import Index

_KIB_PER_MB = 1024
"""MB means MiB here, as in `kubectl top`."""


def measure(nodes: int, seed: int) -> dict[str, float]:
    """Seconds for index and plan, and the peak of memory in MB, records and interpreter included."""
    snapshot = cluster(nodes, seed)
    records_mb = _peak_mb()
    begun_s = perf_counter()
    index = Index.of(snapshot)
    built_s = perf_counter()
    made = plan(index, policy(), NOW_S)
    done_s = perf_counter()
    return {
        "index_seconds": built_s - begun_s,
        "plan_seconds": done_s - built_s,
        "records_mb": records_mb,
        "peak_mb": _peak_mb(),
        "jobs_planned": len(made.jobs),
        "creates": sum(create.count for create in made.creates),
        "releases": len(made.releases),
    }


def _peak_mb() -> float:
    """Of this program alone: `ru_maxrss` keeps what the process held before `exec`, VmHWM not."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / _KIB_PER_MB


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
