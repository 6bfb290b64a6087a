"""Parameter servers as processes."""

from pathlib import Path

from tests.sdk.support.master_server import TOKEN
from tests.support.server_process import ServerProcess


class PserverProcess(ServerProcess):
    """A parameter server that can be restarted at the same port and folder."""

    def __init__(
        self,
        directory: Path,
        index: int = 0,
        of: int = 1,
        *,
        job: str = "digits",
        waits: bool = True,
    ) -> None:
        """Starts it.

        Args:
            directory: Of its checkpoints.
            index: Which server it is.
            of: How many there are.
            job: Whose.
            waits: Whether to return only when it serves.
        """
        self.directory = directory
        directory.mkdir(exist_ok=True, parents=True)
        token = directory / "token"
        token.write_text(TOKEN)
        place = ("--index", str(index), "--of", str(of), "--job", job)
        super().__init__(
            "pserver",
            *place,
            *("--checkpoints", str(directory), "--token-file", str(token)),
            log=directory / "log",
            variables={},
            waits=waits,
        )
