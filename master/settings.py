"""Settings of the master, from its command line and its environment."""

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from master.ledger import MAX_DROPPED_SHARE
from master.rendezvous import STUCK_S
from master.retry_pauses import OUTAGE_S
from runtime.job_settings import JobServerSettings
from runtime.settings import Address


class MasterSettings(JobServerSettings):
    """Settings of `python -m master`."""

    component: ClassVar[str] = "master"

    listen: Address = "127.0.0.1:8790"
    """Address and port to serve at; port 0 chooses a free one."""
    journal: Path = Path("edl-journal")
    """Directory of the journal; it is created if it is missing."""
    snapshot_configmap: str = ""
    """NAMESPACE/NAME of a ConfigMap for snapshots, so that a master in another pod can take over."""
    kubeconfig: Path | None = None
    """Kubeconfig for that ConfigMap; default is the pod's service account."""
    heartbeat_seconds: Annotated[float, Field(ge=0.05, le=60)] = 2.0
    """Interval of trainers' heartbeats; after three missed ones a trainer counts as dead."""
    stuck_seconds: Annotated[float, Field(ge=1, le=86_400)] = STUCK_S
    """A member of a synchronous job is dropped if the others wait for it longer than this."""
    max_dropped_share: Annotated[float, Field(ge=0, le=1)] = MAX_DROPPED_SHARE
    """Share of a data set's tasks that may be dropped before the job fails; above 0, one task always may."""
    outage_seconds: Annotated[float, Field(ge=1, le=86_400)] = OUTAGE_S
    """The job fails if no task of a data set can be read for longer than this."""
    max_steps: Annotated[int, Field(ge=1)] | None = None
    """Training ends after this many steps of all trainers together, even if data remains."""

    @field_validator("snapshot_configmap")
    @classmethod
    def _configmap(cls, value: str) -> str:
        if value and not all(value.partition("/")):
            raise ValueError(f"{value!r} is not NAMESPACE/NAME")
        return value
