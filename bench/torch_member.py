"""A trainer of `bench.torch_changes`: a perceptron in torch of some megabytes.

Arguments: the file for its lines, as those of `tests.sdk.sync.program`, and options as JSON: the folder
of `torch`, `megabytes` of the model, `beside` (plain DDP beside it, on the same batches), and how many
`members` then train.
"""

import json
import sys
from typing import Any

from edl import clock
from edl.sync import SyncStep

from tests.sdk.sync.notes import notes, place_of

BATCH = 64
_STEPS = 100_000
_SIDE = 500
"""Width of a layer: a megabyte."""


def main(path: str, text: str) -> None:
    """Trains until it is killed, or to the end."""
    options = json.loads(text)
    sys.path.insert(0, options["torch"])
    import edl.torch  # noqa: PLC0415 - found only now
    import torch  # noqa: PLC0415 - as above
    from torch.utils.data import DataLoader  # noqa: PLC0415 - as above

    torch.set_num_threads(1)
    modules = layers(torch, options["megabytes"])
    model = torch.nn.Sequential(*modules)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    beside: Beside | None = None
    with notes(path) as tell:

        def note(step: SyncStep) -> None:
            nonlocal beside
            tell(place_of(step))
            if options["beside"] and beside is None and step.world_size == options["members"]:
                beside = Beside(torch, len(modules), options["beside"], step)

        tell({"ready": True})
        tell({"arrived_s": clock.monotonic_s()})
        with edl.torch.Training(
            model,
            optimizer,
            records=BATCH * _STEPS,
            batch_size=BATCH,
            micro_batches=options["members"],
            on_step=note,
        ) as training:
            loader = DataLoader(Numbers(torch), batch_sampler=training.sampler)
            after_s = 0.0
            for step in training.steps(loader):
                before_s = clock.monotonic_s()
                if beside is not None:
                    beside.step()
                    now_s = clock.monotonic_s()
                    if after_s:
                        tell({"ours_s": before_s - after_s, "plain_s": now_s - before_s})
                    after_s = now_s
                for batch in step:
                    step.backward(model(batch).square().mean())


def layers(torch: Any, megabytes: int) -> list[Any]:
    """Layers of a megabyte each."""
    return [torch.nn.Linear(_SIDE, _SIDE) for _ in range(megabytes)]


class Numbers:
    """A data set of rows of ones."""

    def __init__(self, torch: Any) -> None:
        self._row = torch.ones(_SIDE)

    def __len__(self) -> int:
        return BATCH * _STEPS

    def __getitem__(self, index: int) -> Any:
        return self._row


class Beside:
    """Plain DistributedDataParallel of the same model, on batches of the same size."""

    def __init__(self, torch: Any, megabytes: int, path: str, step: SyncStep) -> None:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{path}", rank=step.rank, world_size=step.world_size
        )
        model = torch.nn.Sequential(*layers(torch, megabytes))
        self._model = torch.nn.parallel.DistributedDataParallel(model)
        self._optimizer = torch.optim.SGD(self._model.parameters(), 1e-3)
        data, size = Numbers(torch), BATCH // step.world_size
        self._loader = iter(torch.utils.data.DataLoader(data, batch_size=size))

    def step(self) -> None:
        """Makes one step, with all members."""
        self._optimizer.zero_grad()
        self._model(next(self._loader)).square().mean().backward()
        self._optimizer.step()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
