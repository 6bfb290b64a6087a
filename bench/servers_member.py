"""A trainer with parameter servers for `bench.curves`; arguments as of `tests.sdk.sync.program`."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import edl
import edl.servers
from edl import clock
from edl import model as models


def main(path: str, text: str) -> None:
    """Trains to the end, and judges what the servers have then."""
    options = json.loads(text)
    pause_s, test, seed = options.pop("pause_s"), options.pop("test"), options.pop("seed")
    found = models.load(options.pop("model"))
    worker, dataset = models.worker(found, seed=seed), models.data(options.pop("data"))
    with Path(path).open("a", encoding="utf-8") as out:

        def line(told: dict[str, Any]) -> None:
            out.write(json.dumps(told) + "\n")
            out.flush()

        def tell(step: edl.servers.Step) -> None:
            line({"step": step.version, "loss": step.metrics["loss"], "at_s": clock.monotonic_s()})
            time.sleep(pause_s)

        result = edl.servers.train(worker, dataset, on_step=tell, code=found.code, **options)
        worker.load(edl.servers.fetch().dense)
        source = models.data(test).source
        files = source.shape()["files"]
        batch = source.batch([source.read(one["name"], 0, int(one["records"])) for one in files])
        line({"end": True, "steps": result.steps, "test": models.evaluate(worker, batch)})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
