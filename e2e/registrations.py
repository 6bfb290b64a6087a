"""Converts the webhook configurations of `deploy/base` for an API server that calls a URL.

Pure. Where the webhook runs as a plain process beside an API server, as in the local cluster. In other
clusters the configurations are used unchanged, with a Service.
"""

import copy
from collections.abc import Mapping
from typing import Any


def by_url(configuration: Mapping[str, Any], url: str) -> dict[str, Any]:
    """Copies a Mutating- or ValidatingWebhookConfiguration; entries call `url` plus their path.

    Args:
        configuration: As in the deploy file; each entry names a Service and a path.
        url: https, host and port, such as https://127.0.0.1:8443, without a query (the API server
            refuses one). caBundle is unchanged: the running webhook sets it.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(configuration))
    for entry in changed.get("webhooks", ()):
        service = entry["clientConfig"].pop("service")
        entry["clientConfig"]["url"] = url.rstrip("/") + service["path"]
    return changed
