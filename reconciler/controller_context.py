"""The collaborators that the controllers of trainers and of parameter servers share."""

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
        api: Sends the requests; safe to use on any thread.
        cluster: The cluster state, which the loop keeps up to date.
        expectations: Records the pods that were created and deleted.
        pool: Runs the requests.
        clock_s: Returns the seconds since the epoch.
        endpoints: Returns the addresses of a job's master and servers and its token, or None until
            its objects exist. No pod of the job is created before then.
        scheduling: Returns how training pods choose their scheduler at present.
    """

    api: Api
    cluster: ClusterState
    expectations: Expectations
    pool: Executor
    clock_s: Callable[[], float]
    endpoints: Callable[[Job], JobEndpoints | None]
    scheduling: Callable[[], Scheduling]

    def send_for_pod(self, api_request: request.Request) -> Pod:
        """Sends a request and returns the Pod in the response.

        Raises:
            KubeError: The request failed.
        """
        return decode.pod(call(self.api, api_request))

    def try_send(self, api_request: request.Request) -> errors.KubeError | None:
        """Sends a request; returns the error if it failed."""
        try:
            self.api.send(api_request)
        except errors.KubeError as error:
            return error
        return None

    def delete(
        self, release: Release | ReleaseServer, *, node_lost: bool
    ) -> errors.KubeError | None:
        """Deletes a pod directly, so that no disruption budget can block it; returns the error if it failed.

        On a lost node the grace period is zero, because no kubelet is left to confirm that the pod ended.
        Until the Pod object is gone, its name stays in use and a Service keeps sending trainers to it.
        """
        grace_s = 0 if node_lost else None
        return self.try_send(
            request.delete(
                request.PODS, release.namespace, release.pod, uid=release.uid, grace_s=grace_s
            )
        )
