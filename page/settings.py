"""The page's settings, from its command line and the environment."""

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from policy.names import SYSTEM_NAMESPACE
from runtime.serve import ServeSettings
from runtime.settings import Address


class PageSettings(ServeSettings):
    """Settings of the page."""

    component: ClassVar[str] = "page"

    listen: Address = "127.0.0.1:8446"
    """Address and port to serve on. Without --tls-cert it must be a loopback address: callers send tokens."""
    kubeconfig: Path | None = None
    """Kubeconfig file; without one the pod's service account is used."""
    namespace: str = SYSTEM_NAMESPACE
    """Namespace of the policy ConfigMap."""
    threads: Annotated[int, Field(ge=1, le=64)] = 8
    """Requests answered concurrently; streams need none."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 16 * 1024
    """Bodies of this length or longer get 413. No request needs a body."""
    max_streams: Annotated[int, Field(ge=1, le=1024)] = 64
    """Largest number of open streams; further ones get 503."""
    max_streams_per_caller: Annotated[int, Field(ge=1, le=1024)] = 8
    """Largest number of open streams of one user; further ones get 429."""
    stream_seconds: Annotated[float, Field(ge=1, le=3600)] = 60.0
    """Length of a stream; the browser then opens the next one, and permissions are checked again."""
    access_seconds: Annotated[float, Field(ge=0, le=600)] = 30.0
    """How long a caller's permissions are cached before the API server is asked again."""
    stale_seconds: Annotated[float, Field(ge=10, le=3600)] = 180.0
    """Time without news from the API server after which the page reports not ready."""
