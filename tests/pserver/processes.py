"""Parameter servers as processes."""

import http.client
import signal
import subprocess
import sys
from pathlib import Path

from edl.local.ports import free_ports

from tests.pserver.serving import environment
from tests.reconciler.waiting import until
from tests.sdk.servers import TOKEN

_START_S = 60.0
"""On cores that others share."""


class Process:
    """One server after another, at one port and over one folder."""

    def __init__(
        self, directory: Path, index: int = 0, of: int = 1, *, job: str = "digits"
    ) -> None:
        (self.port,) = free_ports(1)
        self.directory = directory
        self._place = ["--index", str(index), "--of", str(of), "--job", job]
        self._token = directory / "token"
        directory.mkdir(exist_ok=True, parents=True)
        self._token.write_text(TOKEN)
        self.run: subprocess.Popen[bytes]
        self.begin()
        self.wait()

    @property
    def url(self) -> str:
        """As in EDL_PARAMETER_SERVERS."""
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
        until(self._serves, _START_S)

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
