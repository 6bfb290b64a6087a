"""A server of one job as a process, which can be started again at its port."""

import http.client
import os
import signal
import subprocess
import sys
from pathlib import Path

from edl.local.ports import free_ports

from tests.reconciler.waiting import LIMIT_S, until


class ServerProcess:
    """`python -m COMPONENT` at a port of its own; its log is a file."""

    def __init__(
        self,
        component: str,
        *options: str,
        log: Path,
        variables: dict[str, str],
        waits: bool = True,
    ) -> None:
        """Starts it.

        Args:
            component: The module.
            options: What follows `--listen`.
            log: Gets what it writes to stderr.
            variables: See `environment`.
            waits: Whether to return only when it serves.
        """
        (self.port,) = free_ports(1)
        self._command = command(component, "--listen", f"127.0.0.1:{self.port}", *options)
        self._log, self._environ = log, environment(**variables)
        self.run: subprocess.Popen[bytes]
        self.begin()
        if waits:
            self.wait()

    @property
    def url(self) -> str:
        """As trainers have it."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it serves."""
        self.begin()
        self.wait()

    def begin(self) -> None:
        """Does not wait for it."""
        with self._log.open("ab") as log:
            self.run = subprocess.Popen(self._command, env=self._environ, stderr=log)  # noqa: S603 - our own program

    def wait(self) -> None:
        """Until it serves."""
        until(self._serves)

    def end(self, number: signal.Signals) -> int:
        """Its exit code after a signal; it may have ended before."""
        if self.run.poll() is None:
            self.run.send_signal(number)
        return self.run.wait(LIMIT_S)

    def _serves(self) -> bool:
        assert self.run.poll() is None, self._log.read_text()
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            link.request("GET", "/healthz")
            return link.getresponse().status == 200
        except OSError:
            return False
        finally:
            link.close()


def command(component: str, *arguments: str) -> list[str]:
    """The command line of a component."""
    return [sys.executable, "-m", component, *arguments]


def run_to_end(
    component: str, *arguments: str, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Runs a component with arguments with which it ends by itself."""
    return subprocess.run(  # noqa: S603 - our own program
        command(component, *arguments),
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def environment(**variables: str) -> dict[str, str]:
    """An environment with these variables, and without this process's EDL variables."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
    return {**inherited, **variables}
