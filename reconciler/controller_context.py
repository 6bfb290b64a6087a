"""What the controllers of trainers and of parameter servers share."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from kube import decode, errors, request
from kube.api import Api
from kube.reading import call
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, Pod
from policy.planning.plan import Release, ReleaseServer
from policy.scheduling import Scheduling
from reconciler.expectations import Expectations
from reconciler.masters.job_objects import JobEndpoints


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """The collaborators of a controller that creates and deletes pods.

    Attributes:
        api: Receives the requests; safe on any thread.
        cluster: The state of the cluster, kept current by the loop.
        expectations: Records created and deleted pods.
        pool: Runs the requests.
        clock_s: Seconds since the epoch.
        endpoints: Addresses of a job's master and servers, and its token; None until its objects
            exist, and until then no pod of the job is created.
        scheduling: How training pods ask for a scheduler now.
    """

    api: Api
    cluster: ClusterState
    expectations: Expectations
    pool: Executor
    clock_s: Callable[[], float]
    endpoints: Callable[[Job], JobEndpoints | None]
    scheduling: Callable[[], Scheduling]

    def send_for_pod(self, api_request: request.Request) -> Pod:
        """Sends a request that the API server answers with a Pod.

        Raises:
            KubeError: the request failed.
        """
        return decode.pod(call(self.api, api_request))

    def try_send(self, api_request: request.Request) -> errors.KubeError | None:
        """Sends a request; returns the error where it failed."""
        try:
            self.api.send(api_request)
        except errors.KubeError as error:
            return error
        return None

    def delete(
        self, release: Release | ReleaseServer, *, node_lost: bool
    ) -> errors.KubeError | None:
        """Deletes a pod directly, which no budget can prevent; returns the error where it failed.

        There is no grace period on a lost node: no kubelet would confirm the end of the pod, and
        meanwhile its name stays in use, and a Service sends trainers to it.
        """
        grace_s = 0 if node_lost else None
        return self.try_send(
            request.delete(
                request.PODS, release.namespace, release.pod, uid=release.uid, grace_s=grace_s
            )
        )
