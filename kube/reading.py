"""Reads objects that may not exist."""

from typing import Any

import orjson

from kube.api import Api
from kube.errors import NotFound
from kube.request import Request


def find(api: Api, get_request: Request) -> dict[str, Any] | None:
    """The object of a `kube.request.get`; None where it does not exist.

    Raises:
        KubeError: any other failure.
    """
    try:
        api_object: dict[str, Any] = orjson.loads(api.send(get_request))
    except NotFound:
        return None
    return api_object
