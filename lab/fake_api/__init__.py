"""An in-memory API server for tests and benchmarks; it passes the same contract tests as a real one.

`FakeApi` is the server, and `Faults` injects failures.
"""

from lab.fake_api.faults import Faults
from lab.fake_api.server import FakeApi

__all__ = ["FakeApi", "Faults"]
