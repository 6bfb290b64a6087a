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
    """Address and port to serve on. Without --tls-cert it must be of this host: callers send tokens."""
    kubeconfig: Path | None = None
    """Kubeconfig file; without one the pod's service account is used."""
    namespace: str = SYSTEM_NAMESPACE
    """Namespace of the policy ConfigMap."""
    threads: Annotated[int, Field(ge=1, le=64)] = 8
    """Requests answered concurrently; streams need none."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 16 * 1024
    """A body of this length gets 413; no request needs one."""
    max_streams: Annotated[int, Field(ge=1, le=1024)] = 64
    """Open streams; one more gets 503."""
    max_streams_per_caller: Annotated[int, Field(ge=1, le=1024)] = 8
    """Open streams of one user; one more gets 429."""
    stream_seconds: Annotated[float, Field(ge=1, le=3600)] = 60.0
    """Length of a stream; the browser opens the next one, for which rights are checked again."""
    access_seconds: Annotated[float, Field(ge=0, le=600)] = 30.0
    """How long what a caller may see is remembered before the API server is asked again."""
    stale_seconds: Annotated[float, Field(ge=10, le=3600)] = 180.0
    """Time without news from the API server after which the page reports not ready."""
