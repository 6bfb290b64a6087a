"""Copies the extender's certificates from their Secret into files that `runtime.tls` serves and reloads.

If the Secret were mounted as a volume, the pod would start only once the Secret exists, and up to two minutes
later than that, because kubelets retry a missing volume at doubling intervals. `extender.__main__` copies the
files before it serves; afterwards a thread in the worker does.
"""

import base64
import binascii
import logging
import threading
from collections.abc import Mapping
from typing import Any

from extender.settings import ExtenderSettings
from kube import request
from kube.api import Api
from kube.errors import KubeError
from kube.reading import call
from kube.request import SECRETS
from runtime import private_file
from runtime.logs import keys, one_line

log = logging.getLogger(__name__)

FIRST_S = 1.0
"""Interval between checks for a Secret that does not exist yet."""
SYNC_S = 30.0
"""Interval between checks for new contents."""
_STOP_S = 5.0


class TlsFiles:
    """The files of one server: `server` is its certificate and key, `client_ca` the CA of callers."""

    def __init__(self, api: Api, settings: ExtenderSettings) -> None:
        self.server = settings.tls_dir / "server.pem"
        self.client_ca = settings.tls_dir / "ca.crt"
        self._api = api
        self._request = request.get(SECRETS, settings.namespace, settings.tls_secret)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="certificates", daemon=True)
        self._problem = ""

    def sync(self) -> bool:
        """Writes the files that have changed; if that fails, logs one line and returns False."""
        try:
            data = call(self._api, self._request).get("data") or {}
            pair = _decoded(data, "tls.crt") + _decoded(data, "tls.key")
            client_ca = _decoded(data, "ca.crt")
            private_file.write(self.server, pair)
            private_file.write(self.client_ca, client_ca)
        except (KubeError, OSError, ValueError) as error:
            problem = one_line(error)
            if problem != self._problem:
                log.warning("no certificate", extra=keys(secret=self._request.path, error=problem))
            self._problem = problem
            return False
        self._problem = ""
        return True

    def wait(self) -> None:
        """Waits until both files exist; files of an earlier start suffice while the API server is down."""
        never = threading.Event()
        while not self.sync() and not (self.server.exists() and self.client_ca.exists()):
            never.wait(FIRST_S)

    def start(self) -> None:
        """Starts the thread that follows the Secret."""
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def _run(self) -> None:
        while not self._stopping.wait(SYNC_S):
            self.sync()


def _decoded(data: Mapping[str, Any], name: str) -> bytes:
    """Returns one file of a Secret's data.

    Raises:
        ValueError: The file is missing, or is not valid base64.
    """
    try:
        return base64.b64decode(data[name], validate=True)
    except (KeyError, TypeError, binascii.Error) as error:
        raise ValueError(f"the Secret has no usable {name}") from error
