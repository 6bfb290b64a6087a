"""Settings of the webhook, from its command line and environment."""

from pathlib import Path
from typing import ClassVar

from policy.names import SYSTEM_NAMESPACE
from runtime.serve import ServeSettings


class WebhookSettings(ServeSettings):
    """Settings of `python -m webhook`."""

    component: ClassVar[str] = "webhook"

    kubeconfig: Path | None = None
    """Kubeconfig file; default: the pod's service account, then the user's own kubeconfig."""
    context: str | None = None
    """Context of the kubeconfig; default: the current context."""
    namespace: str = SYSTEM_NAMESPACE
    """Namespace of EDL: its policy ConfigMap, its certificates and its Service edl-webhook."""
    master_image: str = ""
    """Image of the masters and parameter servers of jobs; default: the image of the Deployment edl-webhook."""
    hosts: tuple[str, ...] = ()
    """Additional names or addresses of the certificate, if the API server calls a URL."""
    certificate_dir: Path = Path("/run/edl-webhook")
    """Directory for the served certificate; unused with --tls-cert."""
