"""The webhook configurations of `deploy/base`, for an API server that calls by URL.

Pure. Who calls: whoever runs the webhook as a plain process beside an API server, such as the
local cluster; in a cluster the configurations are used as they are, with a Service.
"""

import copy
from collections.abc import Mapping
from typing import Any


def by_url(configuration: Mapping[str, Any], url: str) -> dict[str, Any]:
    """A copy of a Mutating- or ValidatingWebhookConfiguration that calls `url` plus each path.

    Args:
        configuration: As in the deploy file; each entry names a Service and a path.
        url: https, host and port, such as https://127.0.0.1:8443; no query (the API server
            refuses one). caBundle stays as it is: the running webhook fills it in.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(configuration))
    for entry in changed.get("webhooks", ()):
        service = entry["clientConfig"].pop("service")
        entry["clientConfig"]["url"] = url.rstrip("/") + service["path"]
    return changed
