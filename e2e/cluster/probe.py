"""Asks the components whether they are ready, over the same TLS as everybody else."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from e2e.cluster.errors import ClusterError
from e2e.cluster.process import Process
from runtime.clock import monotonic_s

_POLL_S = 0.05
_ASK_S = 2.0
_OK = 200


@dataclass(frozen=True, slots=True)
class Check:
    """A URL that answers 200 once `process` is ready."""

    process: Process
    url: str


class Prober:
    """Polls URLs with an administrator's certificate."""

    def __init__(self, ca: Path, cert: Path, key: Path) -> None:
        """Takes the files of the CA and of the certificate to show."""
        self._pool = urllib3.PoolManager(
            ca_certs=str(ca),
            cert_file=str(cert),
            key_file=str(key),
            timeout=urllib3.Timeout(total=_ASK_S),
            retries=False,
        )

    def close(self) -> None:
        """Drops idle connections."""
        self._pool.clear()

    def wait(self, checks: Iterable[Check], timeout_s: float) -> None:
        """Returns when every check has passed.

        Raises:
            ClusterError: a process ended, or the time is over; names its log.
        """
        deadline_s = monotonic_s() + timeout_s
        open_checks = list(checks)
        while open_checks:
            open_checks = [check for check in open_checks if not self._passes(check.url)]
            for check in open_checks:
                if check.process.exit_code is not None:
                    raise ClusterError(died(check.process))
            if open_checks and monotonic_s() > deadline_s:
                raise ClusterError(_late(open_checks[0], timeout_s))
            if open_checks:
                time.sleep(_POLL_S)

    def read(self, url: str) -> dict[str, Any]:
        """Returns the object at a URL of the API server; empty if there is none, or no answer."""
        answer = self._ask(url)
        body: dict[str, Any] = answer.json() if answer and answer.status == _OK else {}
        return body

    def _passes(self, url: str) -> bool:
        answer = self._ask(url)
        return answer is not None and answer.status == _OK

    def _ask(self, url: str) -> urllib3.BaseHTTPResponse | None:
        try:
            return self._pool.request("GET", url)
        except (urllib3.exceptions.HTTPError, OSError):
            return None


def died(process: Process) -> str:
    """One line on a process that ended by itself."""
    return (
        f"{process.name} ended with exit code {process.exit_code}: {process.last_lines()} "
        f"(whole log: {process.log})"
    )


def _late(check: Check, timeout_s: float) -> str:
    process = check.process
    return (
        f"{process.name} was not ready within {timeout_s:.0f} s ({check.url}): "
        f"{process.last_lines()} (whole log: {process.log})"
    )
