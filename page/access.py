"""Decides what a caller may see: asks the API server with the caller's token, and caches the answer briefly.

A caller who may list DecisionLogs, Jobs and Pods of a namespace sees that namespace. A caller who may list
nodes, and the pods of all namespaces, sees the use of the cluster, shares and nodes.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from hashlib import sha256

from kube import access_review
from kube.access_review import AccessRight
from kube.api import Api
from kube.request import DECISIONLOGS, JOBS, NODES, PODS, Resource
from policy.records import CLUSTER

_MAX_CALLERS = 1_000
_MAX_NAMESPACES = 1_000
"""Maximum number of namespaces for which one caller's permissions are looked up; further ones are ignored."""
_KINDS = (DECISIONLOGS, JOBS, PODS)
"""Kinds that a caller must be allowed to list to see a namespace; the first refusal ends the check."""


@dataclass(frozen=True, slots=True)
class Access:
    """The parts of the cluster that a caller may see."""

    user: str
    namespaces: frozenset[str] | None
    """The visible namespaces; None for all."""
    cluster: bool = False
    """Whether nodes and sums over all namespaces are visible."""

    @property
    def all_namespaces(self) -> bool:
        """Whether all namespaces are visible."""
        return self.namespaces is None

    @property
    def cluster_log(self) -> bool:
        """Whether the objective and the records that name other namespaces are visible."""
        return self.sees(CLUSTER)

    def sees(self, namespace: str) -> bool:
        """Returns whether a namespace is visible."""
        return self.namespaces is None or namespace in self.namespaces

    @property
    def fingerprint(self) -> str:
        """A hash of the visible parts of the cluster; it differs for callers who see different parts."""
        names = "*" if self.namespaces is None else "/".join(sorted(self.namespaces))
        return sha256(f"{self.user}\n{names}\n{self.cluster}".encode()).hexdigest()[:12]


class Authorizer:
    """Looks up callers' permissions at the API server and caches them. Thread-safe."""

    def __init__(
        self,
        with_token: Callable[[str], Api],
        namespaces: Callable[[], Collection[str]],
        keep_s: float,
        clock_s: Callable[[], float],
    ) -> None:
        """Initializes the authorizer.

        Args:
            with_token: Returns the API server, used with a caller's token and no other credentials.
            namespaces: Returns the namespaces that have something to show.
            keep_s: How long an answer is cached.
            clock_s: A monotonic clock.
        """
        self._with_token = with_token
        self._namespaces = namespaces
        self._keep_s = keep_s
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[float, Access]] = OrderedDict()
        """Digest of a token -> (expiry, access of its owner); the token itself is not kept."""

    def access(self, token: str) -> Access:
        """Returns the parts of the cluster that the owner of a token may see.

        Raises:
            Unauthorized: The API server rejects the token.
            KubeError: A request to the API server failed.
        """
        digest = sha256(token.encode()).digest()
        now_s = self._clock_s()
        with self._lock:
            until_s, access = self._known.get(digest, (0.0, None))
            if access is not None and now_s < until_s:
                return access
        access = self._ask(self._with_token(token))
        with self._lock:
            self._known.pop(digest, None)
            self._known[digest] = now_s + self._keep_s, access
            if len(self._known) > _MAX_CALLERS:
                self._known.popitem(last=False)
        return access

    def api(self, token: str) -> Api:
        """Returns the API server, used with a caller's token."""
        return self._with_token(token)

    def _ask(self, api: Api) -> Access:
        user = access_review.user(api)
        all_pods = access_review.may(api, AccessRight("list", PODS))
        cluster = all_pods and access_review.may(api, AccessRight("list", NODES))
        if all_pods and _may_all(api, [DECISIONLOGS, JOBS], ""):
            return Access(user, None, cluster)
        names = sorted({CLUSTER, *self._namespaces()})[:_MAX_NAMESPACES]
        visible = frozenset(name for name in names if _may_all(api, _KINDS, name))
        return Access(user, visible, cluster)


def _may_all(api: Api, kinds: Iterable[Resource], namespace: str) -> bool:
    return all(access_review.may(api, AccessRight("list", kind, namespace)) for kind in kinds)
