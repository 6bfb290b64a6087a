"""All benchmarks by their name on the command line."""

from bench import curves, exchange, extender, master, odd, plan, pserver, rounds, sdk, steps
from bench.benchmark import Benchmark

BENCHMARKS: dict[str, Benchmark] = {
    "plan": plan.run,
    "odd": odd.run,
    "master": master.run,
    "sdk": sdk.run,
    "extender": extender.run,
    "exchange": exchange.run,
    "rounds": rounds.run,
    "curves": curves.run,
    "steps": steps.run,
    "pserver": pserver.run,
}
