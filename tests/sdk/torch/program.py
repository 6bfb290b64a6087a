"""A trainer in torch as a process of its own: `tests.sdk.sync.fleets` signals and watches it.

Arguments as those of `tests.sdk.sync.program`: the file for its lines, and options as JSON, among them the
folder of `torch`, `epochs`, and how many `records` there are. Under `edl agent` the model is sharded over
its processes, and the first of them writes the lines.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from edl import clock
from edl.sync import SyncStep

from tests.sdk.sync.notes import notes, place_of

_FEATURES, _WIDTH = 8, 32
_LOOK_S = 0.01


def shard(model: Any) -> None:
    """Has the processes of this pod hold the model together, as an agent has started them."""
    import torch.distributed as dist  # noqa: PLC0415 - found only now
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - as above
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 - as above

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def main(path: str, text: str) -> None:
    """Trains to the end, or until SIGTERM."""
    options = json.loads(text)
    sys.path.insert(0, options.pop("torch"))
    pause_s, hurry = options.pop("pause_s", 0.0), Path(options.pop("hurry", ""))
    go, records = options.pop("go", None), options["records"]
    import edl.torch  # noqa: PLC0415 - found only now
    import torch  # noqa: PLC0415 - as above
    from torch.utils.data import DataLoader, TensorDataset  # noqa: PLC0415 - as above

    torch.set_num_threads(1)
    torch.manual_seed(0)
    inputs = torch.randn(records, _FEATURES)
    targets = inputs @ torch.ones(_FEATURES, 1)
    layers = (torch.nn.Linear(_FEATURES, _WIDTH), torch.nn.Tanh(), torch.nn.Linear(_WIDTH, 1))
    model = torch.nn.Sequential(*layers)
    rank = int(os.environ.get("RANK", "0"))
    if "RANK" in os.environ:
        shard(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.005)
    with notes(os.devnull if rank else path) as tell:

        def note(step: SyncStep) -> None:
            tell({**place_of(step), "loss": step.metrics["loss"]})
            if pause_s and not hurry.is_file():
                time.sleep(pause_s)

        tell({"ready": True})
        while go is not None and not Path(go).exists():
            time.sleep(_LOOK_S)
        tell({"arrived_s": clock.monotonic_s()})
        with edl.torch.Training(model, optimizer, on_step=note, **options) as training:
            loader = DataLoader(TensorDataset(inputs, targets), batch_sampler=training.sampler)
            for step in training.steps(loader):
                for rows, wanted in step:
                    step.backward(torch.nn.functional.mse_loss(model(rows), wanted))
            result = training.result
        sums = [parameter.detach().abs().sum() for parameter in model.parameters()]
        total = float(sum(s.full_tensor() if hasattr(s, "full_tensor") else s for s in sums))
        tell({"end": result.whole, "late": result.late, "steps": result.steps, "digest": total})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
