"""A trainer of `bench.torch_growth`: a perceptron in torch with Adam, whose state is as large as asked.

Arguments: the file for its lines, as those of `bench.growth_member`, and options as JSON: the folder of `torch`,
`megabytes` of the state, and how many `steps` it trains at most.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edl import clock
from edl.sync import SyncStep

from bench.growth_member import peak_mb
from bench.torch_member import BATCH, Numbers, layers

_ARRAYS = 3
"""A parameter, and Adam's two means."""
_MICRO_BATCHES = 16


def main(path: str, text: str) -> None:
    """Trains until it is killed, or to the end."""
    options = json.loads(text)
    sys.path.insert(0, options["torch"])
    import edl.torch  # noqa: PLC0415 - found only now
    import torch  # noqa: PLC0415 - as above
    from torch.utils.data import DataLoader  # noqa: PLC0415 - as above

    torch.set_num_threads(1)
    model = torch.nn.Sequential(*layers(torch, options["megabytes"] // _ARRAYS))
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    shown = next(model.parameters())
    with Path(path).open("a", encoding="utf-8") as out:

        def tell(line: Mapping[str, Any]) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        def note(step: SyncStep) -> None:
            place = {"step": step.step, "round": step.round, "rank": step.rank}
            times = {"world": step.world_size, "at_s": clock.monotonic_s(), "peak_mb": peak_mb()}
            tell({**place, **times, "sum": float(shown.sum())})

        tell({"ready": True})
        tell({"arrived_s": clock.monotonic_s()})
        with edl.torch.Training(
            model,
            optimizer,
            records=BATCH * options["steps"],
            batch_size=BATCH,
            micro_batches=_MICRO_BATCHES,
            on_step=note,
        ) as training:
            loader = DataLoader(Numbers(torch), batch_sampler=training.sampler)
            for step in training.steps(loader):
                for batch in step:
                    step.backward(model(batch).square().mean())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
