"""What the webhook can be told on its command line or in its environment."""

from pathlib import Path
from typing import ClassVar

from policy.names import SYSTEM_NAMESPACE
from runtime.serve import ServeSettings


class WebhookSettings(ServeSettings):
    """Settings of `python -m webhook`."""

    room: ClassVar[str] = "webhook"

    kubeconfig: Path | None = None
    """Kubeconfig file; without one, the pod's service account, then the user's own kubeconfig."""
    context: str | None = None
    """Context of the kubeconfig; without one, its current one."""
    namespace: str = SYSTEM_NAMESPACE
    """Namespace of EDL: its policy ConfigMap, its certificates and its Service edl-webhook."""
    master_image: str = ""
    """Image of masters and parameter servers that jobs ask for: EDL's own, or another with both."""
    hosts: tuple[str, ...] = ()
    """More names or addresses the certificate is for, where the API server calls by URL."""
    certificate_dir: Path = Path("/run/edl-webhook")
    """Directory for the certificate that is being served; unused where --tls-cert is given."""
