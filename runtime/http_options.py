"""The options of aiohttp's HTTP protocol that all servers share, and its log."""

import logging
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from typing_extensions import override

from runtime.connection import Bounds, count_drop
from runtime.drop_counts import Drop, DropCounts

log = logging.getLogger(__name__)

_MAX_HEADERS = 32
_MAX_FIELD_BYTES = 4096
"""Limit for one header, and for the request line."""


def http_options(bounds: Bounds, drops: DropCounts) -> dict[str, Any]:
    """Returns the options for `aiohttp.web.Server` and `aiohttp.web.AppRunner`.

    Args:
        bounds: The limits for peers.
        drops: Counts requests that are not HTTP.
    """
    return {
        "access_log": None,
        "logger": _HttpLog(drops),
        "keepalive_timeout": bounds.idle_s,
        "handler_cancellation": True,  # a disconnected caller does not wait for the answer
        "auto_decompress": False,  # limits count the bytes that arrive
        "max_line_size": _MAX_FIELD_BYTES,
        "max_field_size": _MAX_FIELD_BYTES,
        "max_headers": _MAX_HEADERS,
    }


class _HttpLog(logging.LoggerAdapter[logging.Logger]):
    """aiohttp's log. Requests that are not HTTP are counted instead of logged with a trace."""

    def __init__(self, drops: DropCounts) -> None:
        super().__init__(log)
        self._drops = drops

    @override
    def exception(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Logs an error of a handler; counts an error of the peer."""
        error = kwargs.get("exc_info")
        if isinstance(error, HttpProcessingError | web.RequestPayloadError):
            count_drop(self._drops, Drop.MALFORMED)
        else:
            log.error(msg, *args, exc_info=error if isinstance(error, BaseException) else True)

    @override
    def debug(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Counts a request whose method is not HTTP; aiohttp logs nothing else at this level."""
        if isinstance(kwargs.get("exc_info"), HttpProcessingError):
            count_drop(self._drops, Drop.MALFORMED)
