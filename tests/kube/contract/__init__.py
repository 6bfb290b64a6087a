"""What EDL relies on of an API server, as facts that hold on the fake and on the real one."""

from tests.kube.contract.collections import CollectionContract
from tests.kube.contract.objects import ObjectContract
from tests.kube.contract.pods import PodContract


class ApiContract(ObjectContract, PodContract, CollectionContract):
    """All the facts. Subclasses give the fixtures that `server.Server` names."""


__all__ = ["ApiContract"]
