"""Settings of the reconciler, from the command line or the environment."""

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from policy.names import SYSTEM_NAMESPACE
from runtime.serve import ServeSettings
from runtime.settings import Address


class ReconcilerSettings(ServeSettings):
    """Settings of the reconciler."""

    component: ClassVar[str] = "reconciler"

    listen: Address = ":8080"
    """Address and port of probes and metrics; port 0 takes a free one."""
    probe_listen: Address | None = None
    """Another address for them; none leaves them at --listen, where nothing else is."""
    kubeconfig: Path | None = None
    """Kubeconfig file; without one the pod's service account is used."""
    namespace: str = SYSTEM_NAMESPACE
    """Where the policy ConfigMap and the leader's lease live."""
    identity: str = ""
    """Name in leader election; by default the host name and a random part."""
    lease_seconds: Annotated[float, Field(ge=1, le=600)] = 15.0
    """How long a leader may fail to renew its lease before another takes over."""
    gather_seconds: Annotated[float, Field(ge=0, le=10)] = 0.1
    """Changes within this time are handled by one plan."""
    tick_seconds: Annotated[float, Field(gt=0, le=600)] = 5.0
    """A plan is made at least this often, whatever changes."""
    stale_seconds: Annotated[float, Field(ge=10, le=3600)] = 180.0
    """Without a message from the API server for this long, the reconciler does not act."""
    named_jobs: Annotated[int, Field(ge=0, le=1000)] = 50
    """Jobs that metrics name, the oldest; the others are summed as "other", and all are for 0."""
    snapshot_folder: Path | None = None
    """Folder for what each plan is made of, with the plan, one file a tick; none writes none."""
    snapshots_kept: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Files in that folder; the newest replaces the oldest."""
