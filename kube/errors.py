"""Errors of requests to the API server.

```
Exception
├── ConfigError         no usable kubeconfig or service account
└── KubeError           a request failed; the subclass depends on the HTTP status
    ├── Unauthorized    401: the credentials are invalid or have expired
    ├── Forbidden       403: no permission, or refused by admission
    ├── NotFound        404
    ├── Conflict        409: the object's version or uid differs from the requested one
    ├── AlreadyExists   409
    ├── Gone            410: the resource version or page token is too old; list again
    ├── Invalid         422: a field is wrong, or a patch's `test` failed
    ├── TooManyRequests 429: slow down; also an eviction that a budget refuses
    └── Unavailable     5xx, no connection or a time-out (status 0); the request may have taken effect
```

Other statuses (400, 405, 415) raise a plain KubeError, because they are bugs of the caller. The HTTP library's
error is chained as the cause. A message is a single truncated line, so that no whole response body gets into
logs.
"""

from collections.abc import Mapping
from typing import Any

import orjson

_MAX_CHARS = 300
_BAD_REQUEST = 400
_OVERLOADED = 429
_SERVER_SIDE = 500
_REQUEST_TIMEOUT = 408


class ConfigError(Exception):
    """There is no usable API server configuration; the message names what is missing and where."""


class KubeError(Exception):
    """An API request that failed."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        request: str = "",
        retry_after_s: float = 0.0,
    ) -> None:
        """Stores the details of the failure.

        Args:
            message: The server's message; truncated to one line.
            status: HTTP status; 0 if there was no response.
            reason: The API's Status reason, such as "NotFound".
            request: Method and path.
            retry_after_s: How long the server asks clients to wait; 0 if it did not say.
        """
        self.message = " ".join(message.split())[:_MAX_CHARS]
        self.status = status
        self.reason = reason
        self.request = request
        self.retry_after_s = retry_after_s
        super().__init__(self.message)

    @property
    def kind(self) -> str:
        """A short constant for logs and metric labels."""
        return type(self).__name__

    def __str__(self) -> str:
        """Returns one line: request, status, message."""
        return f"{self.request or 'API request'}: {self.status or 'no answer'}: {self.message}"


class Unauthorized(KubeError):  # noqa: N818 - the API's own name of the error, as below
    """401: the credentials are invalid or have expired."""


class Forbidden(KubeError):  # noqa: N818 - see above
    """403: RBAC or admission refused the request."""


class NotFound(KubeError):  # noqa: N818 - see above
    """404: the object or the resource does not exist."""


class Conflict(KubeError):  # noqa: N818 - see above
    """409: a precondition (resourceVersion, uid) does not hold."""


class AlreadyExists(KubeError):  # noqa: N818 - see above
    """409: an object of this name exists."""


class Gone(KubeError):  # noqa: N818 - see above
    """410: the requested resource version has been compacted."""


class Invalid(KubeError):  # noqa: N818 - see above
    """422: validation rejected the object, or a patch's `test` failed."""


class TooManyRequests(KubeError):  # noqa: N818 - see above
    """429: flow control or a disruption budget refused the request."""


class Unavailable(KubeError):  # noqa: N818 - see above
    """The server failed or did not respond; whether a write took effect is unknown."""


_BY_STATUS: Mapping[int, type[KubeError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    _REQUEST_TIMEOUT: Unavailable,
    409: Conflict,
    410: Gone,
    422: Invalid,
    _OVERLOADED: TooManyRequests,
}


def is_of_budget(error: KubeError) -> bool:
    """Returns whether budgets have refused an eviction; if several cover the pod, the status is 500."""
    return isinstance(error, TooManyRequests) or "PodDisruptionBudget" in error.message


def is_refusal(error: KubeError) -> bool:
    """Returns whether the API server's rules refuse the object: quotas, policies, webhooks or validation.

    Unlike other errors, a refusal does not go away by itself. A webhook's denial is 400 unless it sets
    another status. A dry run also gets 400 if a webhook does not support dry runs (apiserver
    `webhook/errors/statuserror.go`).
    """
    if error.status == _BAD_REQUEST:
        return "does not support dry run" not in error.message
    return isinstance(error, Forbidden | Invalid)


def from_status(status: Mapping[str, Any], request: str = "", *, code: int = 0) -> KubeError:
    """Returns the error that a metav1 `Status` object describes.

    Args:
        status: The object; a watch sends one in an ERROR event.
        request: Method and path.
        code: The HTTP status, used if the object has none.
    """
    code = int(status.get("code") or code or _SERVER_SIDE)
    reason = str(status.get("reason") or "")
    details = status.get("details") or {}
    kind = _BY_STATUS.get(code, Unavailable if code >= _SERVER_SIDE else KubeError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(
        str(status.get("message") or reason or "no reason given"),
        status=code,
        reason=reason,
        request=request,
        retry_after_s=float(details.get("retryAfterSeconds") or 0),
    )


def from_response(code: int, body: bytes, request: str, retry_after: str = "") -> KubeError:
    """Returns the error for an HTTP response other than 2xx.

    Args:
        code: HTTP status.
        body: Usually a Status object; a proxy may send anything.
        request: Method and path.
        retry_after: The Retry-After header; only a number of seconds is supported.
    """
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        status = {}
    if not isinstance(status, dict) or status.get("kind") != "Status":
        status = {"message": body[:_MAX_CHARS].decode("utf-8", "replace")}
    error = from_status({**status, "code": code}, request)
    if retry_after.isdecimal():
        error.retry_after_s = max(error.retry_after_s, float(retry_after[:9]))
    return error
