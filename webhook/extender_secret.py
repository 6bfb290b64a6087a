"""Creates the certificates of kube-scheduler and the extender, if an installation has none.

Called by `webhook.certificate_rotator`, after it has synced the webhook's certificates. A single Secret has
the files of both sides, so that replicas which start together cannot mix two CAs. An existing Secret is never
changed, whether EDL or an admin created it. The CA's key is discarded, so no further certificate can be
issued.
"""

import base64
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from kube import request
from kube.api import Api
from kube.errors import AlreadyExists
from kube.reading import find
from kube.request import SECRETS, SERVICES
from runtime import extender_tls
from runtime.extender_tls import SECRET, SERVICE
from runtime.logs import keys

log = logging.getLogger(__name__)

_NO_ADDRESS = ("", "None")
_ANOTHER_ISSUER = {"cert-manager.io/issuer-name": "edl-webhook"}
"""Without this annotation cert-manager would adopt the Secret (by its SecretIssuerAnnotationsMatch), and
renew it when it expires in ten years."""


def ensure(api: Api, namespace: str, now: datetime) -> None:
    """Creates the Secret if it does not exist and the extender's Service does.

    The certificate is also valid for the Service's IP address, because a kube-scheduler in the host's
    network calls that address.

    Raises:
        KubeError: an object could not be read or written.
    """
    if find(api, request.get(SECRETS, namespace, SECRET)) is not None:
        return
    service = find(api, request.get(SERVICES, namespace, SERVICE))
    if service is None:
        return
    files = extender_tls.files(namespace, _addresses(service), now)
    del files["ca.key"]
    data = {name: base64.b64encode(pem).decode() for name, pem in files.items()}
    labels = {"app.kubernetes.io/part-of": "edl"}
    metadata = {"name": SECRET, "labels": labels, "annotations": _ANOTHER_ISSUER}
    body = {"metadata": metadata, "type": "Opaque", "data": data}
    with suppress(AlreadyExists):  # created by another replica
        api.send(request.create(SECRETS, namespace, body))
        log.info("certificates written", extra=keys(secret=SECRET, step="first"))


def _addresses(service: Mapping[str, Any]) -> tuple[str, ...]:
    spec = service.get("spec") or {}
    addresses = spec.get("clusterIPs") or (spec.get("clusterIP") or "",)
    return tuple(address for address in addresses if address not in _NO_ADDRESS)
