"""Writes files that only their owner may read, such as keys, atomically."""

import os
from pathlib import Path


def write(file: Path, content: bytes) -> None:
    """Replaces a file atomically, with mode 0600; keeps a file that has this content already.

    Raises:
        OSError: the file cannot be written.
    """
    if file.exists() and file.read_bytes() == content:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}")
    partial.unlink(missing_ok=True)
    partial.touch(mode=0o600, exist_ok=False)
    partial.write_bytes(content)
    partial.replace(file)
