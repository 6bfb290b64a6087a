"""Files that only their owner may read, such as keys; readers see the old content or the new one."""

import os
from pathlib import Path


def write(file: Path, content: bytes) -> None:
    """Replaces a file in one step, with mode 0600; leaves one that has the content.

    Raises:
        OSError: it cannot be written.
    """
    if file.exists() and file.read_bytes() == content:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}")
    partial.unlink(missing_ok=True)
    partial.touch(mode=0o600, exist_ok=False)
    partial.write_bytes(content)
    partial.replace(file)
