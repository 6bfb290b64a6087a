"""An API server in memory for tests and benchmarks; it passes the same contract tests as a real one.

`FakeApi` is the server; `Faults` injects failures.
"""

from lab.fake_api.faults import Faults
from lab.fake_api.server import FakeApi

__all__ = ["FakeApi", "Faults"]
