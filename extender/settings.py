"""What the extender can be told on its command line or through the environment."""

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from policy.names import SYSTEM_NAMESPACE
from runtime.serve import ServeSettings


class ExtenderSettings(ServeSettings):
    """Settings of the extender."""

    room: ClassVar[str] = "extender"

    kubeconfig: Path | None = None
    """Kubeconfig file; without one the pod's service account is used."""
    namespace: str = SYSTEM_NAMESPACE
    """Where the policy ConfigMap lives."""
    stale_seconds: Annotated[float, Field(ge=10, le=3600)] = 180.0
    """With no word from the API server for this long, the extender says that it is not ready."""
