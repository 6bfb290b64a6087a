"""All benchmarks by their name on the command line."""

from bench import (
    bounds,
    browser,
    crowd,
    curves,
    exchange,
    extender,
    growth,
    master,
    odd,
    plan,
    pserver,
    records,
    rounds,
    rows,
    sdk,
    steps,
    strangers,
    torch_changes,
)
from bench.benchmark import Benchmark

BENCHMARKS: dict[str, Benchmark] = {
    "plan": plan.run,
    "odd": odd.run,
    "bounds": bounds.run,
    "master": master.run,
    "crowd": crowd.run,
    "sdk": sdk.run,
    "extender": extender.run,
    "exchange": exchange.run,
    "growth": growth.run,
    "rounds": rounds.run,
    "curves": curves.run,
    "steps": steps.run,
    "pserver": pserver.run,
    "rows": rows.run,
    "strangers": strangers.run,
    "records": records.run,
    "browser": browser.run,
    "torch": torch_changes.run,
}
