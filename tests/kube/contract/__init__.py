"""The API server contract that EDL relies on, tested on the fake and on a real server."""

from tests.kube.contract.collections import CollectionContract
from tests.kube.contract.objects import ObjectContract
from tests.kube.contract.pods import PodContract


class ApiContract(ObjectContract, PodContract, CollectionContract):
    """All contract tests. Subclasses define the fixtures of `ContractFixtures`."""


__all__ = ["ApiContract"]
