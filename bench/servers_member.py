"""A trainer of `bench.curves` with parameter servers; arguments as in `tests.sdk.sync.program`."""

import json
import sys
import time

import edl
import edl.servers
from edl import clock
from edl import model as models

from tests.sdk.sync.notes import notes


def main(path: str, text: str) -> None:
    """Trains to the end, then evaluates the servers' parameters."""
    options = json.loads(text)
    pause_s, test, seed = options.pop("pause_s"), options.pop("test"), options.pop("seed")
    user_model = models.load(options.pop("model"))
    worker, dataset = models.worker(user_model, seed=seed), models.data(options.pop("data"))
    with notes(path) as tell:

        def log_step(step: edl.servers.Step) -> None:
            tell({"step": step.version, "loss": step.metrics["loss"], "at_s": clock.monotonic_s()})
            time.sleep(pause_s)

        result = edl.servers.train(
            worker, dataset, on_step=log_step, code=user_model.code, **options
        )
        worker.load(edl.servers.fetch().dense)
        source = models.data(test).source
        files = source.shape()["files"]
        batch = source.batch([source.read(file["name"], 0, int(file["records"])) for file in files])
        tell({"end": True, "steps": result.steps, "test": models.evaluate(worker, batch)})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
