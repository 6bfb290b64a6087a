"""A trainer of parameter servers as a process of its own, whose model counts its records.

Arguments: the file for its lines, then options of `edl.servers.train` as JSON, and among them
`records`, and `pause_s`, which makes steps as long as real ones until the file `hurry` is there.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import edl
import numpy as np
from edl import clock, servers
from edl.servers import Gradients, Lookup, Step, Table

Arrays = dict[str, Any]


class Counting:
    """A worker whose parameters are how often each record was trained."""

    def __init__(self, records: int) -> None:
        self._records = records

    def initial(self) -> Arrays:
        """No record was seen."""
        return {"counts": np.zeros(self._records, np.float32)}

    def tables(self) -> dict[str, Table]:
        """None."""
        return {}

    def optimizer(self) -> dict[str, Any]:
        """Adds the gradients."""
        return {"kind": "sgd", "learning_rate": 1.0}

    def load(self, dense: Mapping[str, Any]) -> None:
        """Counting needs no model."""
        assert dense["counts"].shape == (self._records,)

    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        """One for each record."""
        del lookup
        counts = np.zeros(self._records, np.float32)
        np.add.at(counts, records, np.float32(-1))
        return Gradients({"counts": counts}, {}, {"loss": 1.0})


class Acting(Counting):
    """Performs actions before given batches."""

    def __init__(self, records: int, acts: dict[int, Callable[[], object]]) -> None:
        super().__init__(records)
        self._acts, self._batches = acts, 0

    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        """One for each record."""
        self._batches += 1
        self._acts.pop(self._batches, lambda: None)()
        return super().gradients(records, lookup)


def main(path: str, text: str) -> None:
    """Trains to the end, or until SIGTERM."""
    options = json.loads(text)
    records, pause_s = options.pop("records"), options.pop("pause_s")
    hurry = Path(options.pop("hurry"))
    dataset = edl.from_arrays("points", np.arange(records))
    with Path(path).open("a", encoding="utf-8") as out:

        def tell(step: Step) -> None:
            line = {"step": step.number, "version": step.version, "at_s": clock.monotonic_s()}
            print(json.dumps({**line, "round": 0, "rank": 0, "world": 1}), file=out, flush=True)
            if not hurry.is_file():
                time.sleep(pause_s)

        result = servers.train(Counting(records), dataset, on_step=tell, **options)
        end = {"end": result.whole, "lost_steps": result.lost_steps}
        print(json.dumps(end), file=out, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
