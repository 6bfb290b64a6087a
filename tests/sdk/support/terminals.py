"""What a command writes to a terminal."""

import os


def read_until(terminal: int, text: str) -> str:
    """What comes from a terminal's descriptor up to this text, and a little more at most."""
    output = ""
    while text not in output:
        output += os.read(terminal, 4096).decode(errors="replace")
    return output
