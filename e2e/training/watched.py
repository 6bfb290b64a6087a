"""Runs a trainer as the first process of a container, and writes a trace of its steps.

    python watched.py FOLDER WORDS...

WORDS are the arguments of `python` without this program, such as `-m edl train model.py` or
`train.py`. Appends lines to FOLDER/<trainer>.jsonl: the start with the process's id, each step,
SIGTERM, and the end with the exit code, which is this process's too. A batch of `edl.batches` is a
step. The trainer's output goes to FOLDER/<trainer>.log. The trainer is an ordinary one.
"""

import importlib.util
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_INSIDE = "--inside"


def main(arguments: list[str]) -> int:
    """Runs the watching process; with `--inside`, the trainer."""
    if arguments[0] == _INSIDE:
        _run(Path(arguments[1]), arguments[2:])
        return 0
    return _watch(Path(arguments[0]), arguments[1:])


def _watch(folder: Path, words: list[str]) -> int:
    notes = folder / f"{os.environ['EDL_TRAINER']}.jsonl"
    command = [sys.executable, __file__, _INSIDE, str(notes), *words]
    with notes.with_suffix(".log").open("ab") as printed:
        trainer = subprocess.Popen(command, stdout=printed, stderr=printed)

    def forward(number: int, _: FrameType | None) -> None:
        _note(notes, "sigterm")
        trainer.send_signal(number)

    signal.signal(signal.SIGTERM, forward)
    _note(notes, "start", pid=trainer.pid)
    code = trainer.wait()
    code = code if code >= 0 else 128 - code
    _note(notes, "end", code=code)
    return code


def _run(notes: Path, words: list[str]) -> None:
    import edl.servers  # noqa: PLC0415 - the watching process does without
    import edl.sync  # noqa: PLC0415 - as above

    edl.batches = _noting_batches(edl.batches, notes)
    edl.sync.train = _noting(edl.sync.train, notes)
    edl.servers.train = _noting(edl.servers.train, notes)
    if importlib.util.find_spec("torch") is not None:
        import edl.torch  # noqa: PLC0415 - as above

        setattr(edl.torch, "Training", _noting(edl.torch.Training, notes))  # noqa: B010 - a class, for mypy
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def _noting_batches(batches: Callable[..., Any], notes: Path) -> Any:
    """Wraps `batches` so that each batch is written to the trace once the program is done with it."""

    def noting(*arguments: Any, **options: Any) -> Iterator[Any]:
        loop = batches(*arguments, **options)
        for number, batch in enumerate(loop, 1):
            yield batch
            _note(notes, "step", step=number, records=loop.records)

    return noting


def _noting(train: Callable[..., Any], notes: Path) -> Any:
    """Wraps `train` so that each step is written to the trace before the program's callback.

    After it comes the pause of `STEP_PAUSE_S`, for programs that have none of their own.
    """
    pause_s = float(os.environ.get("STEP_PAUSE_S", "0"))

    def noting(*arguments: Any, on_step: Any = None, **options: Any) -> Any:
        def stepped(step: Any) -> None:
            numbers = {
                name: value for name, value in vars(step).items() if isinstance(value, int | float)
            }
            _note(notes, "step", loss=step.metrics.get("loss"), **numbers)
            if on_step is not None:
                on_step(step)
            time.sleep(pause_s)

        return train(*arguments, on_step=stepped, **options)

    return noting


def _note(path: Path, event: str, **fields: object) -> None:
    line = json.dumps({"at_s": time.time(), "what": event, **fields})
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
