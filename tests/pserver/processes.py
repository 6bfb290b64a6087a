"""Parameter servers as processes."""

import http.client
import signal
import subprocess
import sys
import time
from pathlib import Path

from edl.local.ports import free_ports

from runtime import clock
from tests.pserver.serving import environment
from tests.sdk.master_server import TOKEN

_START_S = 60.0
"""On cores that others share."""


class ServerProcess:
    """A server process that can be restarted at the same port and folder."""

    def __init__(
        self,
        directory: Path,
        index: int = 0,
        of: int = 1,
        *,
        job: str = "digits",
        waits: bool = True,
    ) -> None:
        """Begins.

        Args:
            directory: Of its checkpoints.
            index: Which server it is.
            of: How many there are.
            job: Whose.
            waits: Whether to return only when it serves.
        """
        (self.port,) = free_ports(1)
        self.directory = directory
        self._place = ["--index", str(index), "--of", str(of), "--job", job]
        self._token = directory / "token"
        directory.mkdir(exist_ok=True, parents=True)
        self._token.write_text(TOKEN)
        self.run: subprocess.Popen[bytes]
        self.begin()
        if waits:
            self.wait()

    @property
    def url(self) -> str:
        """Its URL, as in EDL_PARAMETER_SERVERS."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it serves."""
        self.begin()
        self.wait()

    def begin(self) -> None:
        """Does not wait for it."""
        program = [sys.executable, "-m", "pserver", "--listen", f"127.0.0.1:{self.port}"]
        program += [*self._place, "--checkpoints", str(self.directory)]
        with (self.directory / "log").open("ab") as log:
            self.run = subprocess.Popen(  # noqa: S603 - our own program
                [*program, "--token-file", str(self._token)],
                env=environment(),
                stderr=log,
            )

    def wait(self) -> None:
        """Until it serves."""
        until_s = clock.monotonic_s() + _START_S
        while not self._serves():
            assert clock.monotonic_s() < until_s, (self.directory / "log").read_text()
            time.sleep(0.01)

    def end(self, number: signal.Signals) -> int:
        """Its exit code after a signal."""
        if self.run.poll() is None:
            self.run.send_signal(number)
        return self.run.wait(_START_S)

    def _serves(self) -> bool:
        assert self.run.poll() is None, (self.directory / "log").read_text()
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            link.request("GET", "/healthz")
            return link.getresponse().status == 200
        except OSError:
            return False
        finally:
            link.close()
