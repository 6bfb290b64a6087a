"""A trainer of `bench.torch_growth`: a perceptron in torch with Adam, whose state is as large as asked.

Arguments: the file for its lines, as those of `bench.growth_member`, and options as JSON: the folder of `torch`,
`megabytes` of the state, and how many `steps` it trains at most.
"""

import json
import sys

from edl import clock
from edl.sync import SyncStep

from bench.growth_member import peak_mb
from bench.torch_member import BATCH, Numbers, layers
from tests.sdk.sync.notes import notes, place_of

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
    with notes(path) as tell:

        def note(step: SyncStep) -> None:
            tell({**place_of(step), "peak_mb": peak_mb(), "sum": float(shown.sum())})

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
