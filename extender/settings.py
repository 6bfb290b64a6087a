"""The extender's settings, from its command line and the environment."""

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from policy.names import SYSTEM_NAMESPACE
from runtime.serve import ServeSettings


class ExtenderSettings(ServeSettings):
    """Settings of the extender."""

    component: ClassVar[str] = "extender"

    kubeconfig: Path | None = None
    """Kubeconfig file; without one the pod's service account is used."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 32 * 1024 * 1024
    """Bodies of this length or longer get 413. A victim takes 50 bytes: 5 000 nodes with 110 each, 28 MB."""
    namespace: str = SYSTEM_NAMESPACE
    """Namespace of the policy ConfigMap."""
    tls_secret: str = ""
    """Secret with tls.crt, tls.key and ca.crt, used instead of --tls-cert and --client-ca; EDL waits for it."""
    tls_dir: Path = Path("/run/edl-extender")
    """Directory for the files of --tls-secret."""
    stale_seconds: Annotated[float, Field(ge=10, le=3600)] = 180.0
    """Time without news from the API server after which the extender reports not ready."""
