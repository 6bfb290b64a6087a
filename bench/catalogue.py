"""Which benchmarks there are: name on the command line -> what it runs."""

from bench import extender, plan
from bench.benchmark import Benchmark

BENCHMARKS: dict[str, Benchmark] = {
    "plan": plan.run,
    "extender": extender.run,
}
