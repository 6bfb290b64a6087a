"""A replica of torchft for `bench.torch_changes`: the model and the lines of `bench.torch_member`.

It is made as torchft's own example does, with its defaults, but for the wrapper of the model: under torch
2.15 that of the example (`DistributedDataParallel`) stops with an AssertionError when a peer is lost.
"""

import json
import os
import sys
from datetime import timedelta
from typing import Any

from edl import clock

from bench.torch_member import BATCH, Numbers, layers
from tests.sdk.sync.notes import notes

_STEPS = 100_000
_TIMEOUT_S = 5


def main(path: str, text: str) -> None:
    """Trains until it is killed."""
    options = json.loads(text)
    sys.path[:0] = [options["torch"], options["torchft"]]
    import torch  # noqa: PLC0415 - found only now
    import torchft  # noqa: PLC0415 - as above
    from torchft.ddp import PureDistributedDataParallel  # noqa: PLC0415 - as above

    torch.set_num_threads(1)
    model = torch.nn.Sequential(*layers(torch, options["megabytes"]))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True)
    manager = torchft.Manager(
        torchft.ProcessGroupGloo(timeout=timedelta(seconds=_TIMEOUT_S)),
        load,
        lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        min_replica_size=1,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=options["lighthouse"],
        replica_id=os.environ["EDL_TRAINER"],
        hostname="127.0.0.1",
    )
    wrapped = PureDistributedDataParallel(manager, model)
    managed = torchft.Optimizer(manager, optimizer)
    rows = torch.stack([Numbers(torch)[0]] * (BATCH // options["members"]))
    with notes(path) as tell:
        tell({"ready": True})
        tell({"arrived_s": clock.monotonic_s()})
        for _ in range(_STEPS):
            before = manager.current_step()
            managed.zero_grad()
            wrapped(rows).square().mean().backward()
            managed.step()
            step = manager.current_step()
            if step > before:
                rank, world = manager.participating_rank() or 0, manager.num_participants()
                place = {"step": step, "round": 0, "rank": rank, "world": world}
                tell({**place, "at_s": clock.monotonic_s()})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
