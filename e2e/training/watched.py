"""Runs a trainer as the first process of a container, and writes a trace of its batches.

    python watched.py FOLDER PROGRAM [ARGUMENTS]

Appends lines to FOLDER/<trainer>.jsonl: each batch, SIGTERM, and the trainer's end with its exit
code, which is this process's too. The program is an ordinary one and knows nothing of it.
"""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_INSIDE = "--inside"


def main(arguments: list[str]) -> int:
    """Runs the watching process; with `--inside`, the program."""
    if arguments[0] == _INSIDE:
        _run(Path(arguments[1]), arguments[2:])
        return 0
    return _watch(Path(arguments[0]), arguments[1:])


def _watch(folder: Path, program: list[str]) -> int:
    notes = folder / f"{os.environ['EDL_TRAINER']}.jsonl"
    command = [sys.executable, __file__, _INSIDE, str(notes), *program]
    trainer = subprocess.Popen(command)

    def forward(number: int, _: FrameType | None) -> None:
        _note(notes, "sigterm")
        trainer.send_signal(number)

    signal.signal(signal.SIGTERM, forward)
    _note(notes, "start")
    code = trainer.wait()
    code = code if code >= 0 else 128 - code
    _note(notes, "end", code=code)
    return code


def _run(notes: Path, program: list[str]) -> None:
    import edl  # noqa: PLC0415 - the watching process does without

    original_batches = edl.batches

    def batches(*arguments: Any, **options: Any) -> Iterator[Any]:
        loop = original_batches(*arguments, **options)
        for batch in loop:
            yield batch
            _note(notes, "batch", records=loop.records, epoch=loop.epoch)

    edl.batches = batches  # type: ignore[assignment]  # the loop, with notes
    sys.argv = program
    runpy.run_path(program[0], run_name="__main__")


def _note(path: Path, event: str, **fields: object) -> None:
    line = json.dumps({"at_s": time.time(), "what": event, **fields})
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
