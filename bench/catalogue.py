"""Which benchmarks there are: name on the command line -> what it runs."""

from bench import extender, master, plan, sdk
from bench.benchmark import Benchmark

BENCHMARKS: dict[str, Benchmark] = {
    "plan": plan.run,
    "master": master.run,
    "sdk": sdk.run,
    "extender": extender.run,
}
