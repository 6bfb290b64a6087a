"""A trainer as a process of its own: trains a small model and writes a line for each step.

Arguments: the file for its lines, then options of `edl.sync.train` as JSON, and among them:

- `go`: training begins when this file is there;
- `pause_s` makes steps as long as real ones, until the file `hurry` is there, and those after step
  `slow_after` ten times as long: even on a slow machine all changes happen before the end;
- `records` and `rate` are of the small model; `model` and `data` name files of a user's model and
  its data instead, and `test` other data, on which it is judged at the end;
- `counts` trains a model that counts its records, of which the last line has how many it has seen
  how often;
- `micros` adds to each step's line which records this member computed for it.
"""

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import edl
from edl import clock
from edl.sync import Replica, SyncStep

from tests.sdk.sync.notes import notes, place_of
from tests.sdk.sync.replicas import Counting, Noting, Softmax, data, numbers

_LOOK_S = 0.01


def main(path: str, text: str) -> None:
    """Trains to the end, or until SIGTERM."""
    options = json.loads(text)
    pause_s = options.pop("pause_s", 0.0)
    slow_after = options.pop("slow_after", None)
    hurry, test = Path(options.pop("hurry", "")), options.pop("test", None)
    go = options.pop("go", None)
    noting = options.pop("micros", False)
    replica, dataset = build(options)
    if noting:
        replica = Noting(replica)
    with notes(path) as tell:

        def note(step: SyncStep) -> None:
            tell(_line(step, replica.noted() if isinstance(replica, Noting) else None))
            if pause_s and not hurry.is_file():
                time.sleep(
                    pause_s if slow_after is None or step.step <= slow_after else 10 * pause_s
                )

        tell({"ready": True})
        while go is not None and not Path(go).exists():
            time.sleep(_LOOK_S)
        tell({"arrived_s": clock.monotonic_s()})
        result = edl.sync.train(replica, dataset, on_step=note, **options)
        arrays = replica.state().arrays.values()
        digest = float(sum(abs(array).sum() for array in arrays if array.dtype.kind == "f"))
        figures = {name: getattr(result, name) for name in ("steps", "records", "rounds", "redone")}
        judges = test is not None and result.whole and not result.late
        judged = judge(replica, test) if judges else {}
        ended = {
            "end": result.whole,
            "late": result.late,
            "skipped": result.skipped,
            "digest": digest,
        }
        if isinstance(replica, Counting):
            figures["counts"] = Counter(map(int, replica.counts))
        tell({**ended, **figures, "test": judged})


def build(options: dict[str, Any]) -> tuple[Replica, edl.Dataset]:
    """The model and its data; removes from the options what is not of `edl.sync.train`."""
    records, rate = options.pop("records", 512), options.pop("rate", 0.2)
    features = options.pop("features", None)
    model, source = options.pop("model", None), options.pop("data", None)
    if options.pop("counts", False):
        return Counting(records), numbers(records)
    if model is None:
        replica = Softmax(os.getpid() % 1000, rate, *([features] if features else []))
        return replica, data(records)
    from edl import model as models  # noqa: PLC0415 - frameworks take a second to be imported

    loaded = models.load(model)
    options["code"] = loaded.code
    return models.replica(loaded, seed=options.get("seed", 0)), models.data(source)


def judge(replica: Any, path: str) -> dict[str, float]:
    """Means over test data, in one batch."""
    from edl import model as models  # noqa: PLC0415 - as above

    source = models.data(path).source
    blocks = [
        source.read(file["name"], 0, int(file["records"])) for file in source.shape()["files"]
    ]
    return models.evaluate(replica, source.batch(blocks))


def _line(step: SyncStep, micros: list[list[int]] | None) -> dict[str, Any]:
    line = {
        **place_of(step),
        "epoch": step.epoch,
        "records": step.records,
        "metrics": dict(step.metrics),
        "loss": step.metrics.get("loss"),
        "seconds": step.seconds,
        "exchange_s": step.exchange_s,
    }
    return line if micros is None else {**line, "micros": micros}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
