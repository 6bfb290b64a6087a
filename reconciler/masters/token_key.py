"""The key from which the tokens of all jobs are derived, stored in a Secret in EDL's namespace.

Because tokens are derived from it, the reconciler never reads the Secret of a job. It only needs permission to
read this one Secret.
"""

import base64
import binascii
import secrets
from collections.abc import Mapping
from threading import Lock
from typing import Any

from kube import errors, request
from kube.api import Api
from kube.reading import call
from kube.request import SECRETS

SECRET = "edl-job-tokens"  # noqa: S105 - the name of a Secret, not a password
_FIELD = "key"
_KEY_BYTES = 32


class TokenKeyError(Exception):
    """The key cannot be used; the message is one line and names its Secret."""


class TokenKey:
    """Reads the key once, and creates it if it is missing. Safe on any thread."""

    def __init__(self, api: Api, namespace: str) -> None:
        """Initializes the token key.

        Args:
            api: Sends the requests.
            namespace: EDL's namespace.
        """
        self._api, self._namespace = api, namespace
        self._key = b""
        self._lock = Lock()

    def read(self) -> bytes:
        """Returns the key, at least 256 bits.

        Raises:
            KubeError: The API server refused the request or did not respond.
            TokenKeyError: The Secret contains no valid key.
        """
        with self._lock:
            self._key = self._key or self._decode(self._read_or_create())
            return self._key

    def _read_or_create(self) -> Mapping[str, Any]:
        read = request.get(SECRETS, self._namespace, SECRET)
        try:
            return call(self._api, read)
        except errors.NotFound:
            pass
        key = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
        body = {"metadata": {"name": SECRET}, "type": "Opaque", "data": {_FIELD: key}}
        try:
            return call(self._api, request.create(SECRETS, self._namespace, body))
        except errors.AlreadyExists:  # the previous leader has just created it
            return call(self._api, read)

    def _decode(self, secret: Mapping[str, Any]) -> bytes:
        try:
            key = base64.b64decode((secret.get("data") or {}).get(_FIELD) or "", validate=True)
        except binascii.Error:
            key = b""
        if len(key) < _KEY_BYTES:
            raise TokenKeyError(
                f"Secret {SECRET} in {self._namespace} has no usable {_FIELD}: delete it, and "
                "EDL creates it again"
            )
        return key
