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
    """Address and port of probes and metrics; port 0 selects a free one."""
    probe_listen: Address | None = None
    """Separate address for probes and metrics; none serves them at --listen."""
    kubeconfig: Path | None = None
    """Kubeconfig file; without one the pod's service account is used."""
    namespace: str = SYSTEM_NAMESPACE
    """Namespace of the policy ConfigMap and of the leader's Lease."""
    identity: str = ""
    """Name in leader election; by default the host name and a random part."""
    lease_seconds: Annotated[float, Field(ge=1, le=600)] = 15.0
    """How long a leader may fail to renew its lease before another takes over."""
    gather_seconds: Annotated[float, Field(ge=0, le=10)] = 0.1
    """Time during which changes are gathered for one plan."""
    tick_seconds: Annotated[float, Field(gt=0, le=600)] = 5.0
    """Longest time between two plans, even if nothing changes."""
    stale_seconds: Annotated[float, Field(ge=10, le=3600)] = 180.0
    """Time without a message from the API server after which the reconciler stops acting."""
    named_jobs: Annotated[int, Field(ge=0, le=1000)] = 50
    """Number of oldest jobs that metrics name; the other jobs are summed as "other"."""
    snapshot_folder: Path | None = None
    """Folder to write each plan and its input to, one file per tick; none writes no files."""
    snapshots_kept: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Largest number of files in that folder; the newest replaces the oldest."""
