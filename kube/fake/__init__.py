"""An API server in memory for tests and dry runs; it passes the same contract tests as a real one.

`FakeApi` is the server; `Faults` injects failures.
"""

from kube.fake.faults import Faults
from kube.fake.server import FakeApi

__all__ = ["FakeApi", "Faults"]
