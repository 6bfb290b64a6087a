"""An API server in memory, shipped for tests and dry runs; one contract suite holds it to the real.

`FakeApi` is the way in, `Faults` makes it misbehave on purpose.
"""

from kube.fake.faults import Faults
from kube.fake.server import FakeApi

__all__ = ["FakeApi", "Faults"]
