"""A master as a process."""

from pathlib import Path

from tests.master.serving import TOKEN
from tests.support.server_process import ServerProcess


class MasterProcess(ServerProcess):
    """Master processes that follow each other, at one port and with one journal."""

    def __init__(self, root: Path, *options: str) -> None:
        """Returns when it serves."""
        self.journal = root / "journal"
        super().__init__(
            "master",
            *("--journal", str(self.journal)),
            *options,
            log=root / "log",
            variables={"EDL_JOB": "digits", "EDL_TOKEN": TOKEN},
        )
