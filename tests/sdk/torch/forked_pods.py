"""Pods of two processes, forked from one that has imported torch, as members of a real master's job."""

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from edl import Session, Settings
from edl.local.ports import free_ports
from edl.sync import SyncStep, parts
from edl.sync.state_stream import StateSender
from edl.torch.state.replica import TorchReplica
from edl.torch.training import Training
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

from tests.master.serving import TOKEN
from tests.sdk.torch.crew import loss_of, network, points

PROCESSES = 2
_BYTE, _PART_BYTES = b".", 256


def load_lazy_parts() -> None:
    """Loads what torch loads with the first optimizer: once, and not in each process that is forked."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    torch.optim.Adam([parameter]).step()


class Gates:
    """Steps after which a pod waits until the test lets it go on."""

    def __init__(self, steps: tuple[int, ...]) -> None:
        self.steps = steps
        self._reached, self._open = os.pipe(), os.pipe()

    def wait(self) -> None:
        """Waits, in the test, until the pod has come to the next gate."""
        os.read(self._reached[0], 1)

    def open(self) -> None:
        """Lets the pod go on."""
        os.write(self._open[1], _BYTE)

    def __call__(self, step: SyncStep) -> None:
        """Waits, in the pod, where there is a gate."""
        if step.step in self.steps:
            os.write(self._reached[1], _BYTE)
            os.read(self._open[0], 1)


class ForkedPod:
    """A pod; it joins a job when it is let in."""

    def __init__(
        self,
        folder: Path,
        name: str,
        options: Mapping[str, Any],
        gates: tuple[int, ...] = (),
        *,
        in_parts: bool = False,
    ) -> None:
        """Forks its processes: no thread may run yet.

        Args:
            folder: For what they write at their end.
            name: Of the pod.
            options: Of `Training`.
            gates: As of `Gates`.
            in_parts: Whether its state counts as large.
        """
        self._folder, self.name, self._options = folder, name, dict(options)
        self._in_parts = in_parts
        self.gates = Gates(gates)
        self._letting_in = os.pipe()
        port = free_ports(1)[0]
        self.processes = [self._fork(rank, port) for rank in range(PROCESSES)]

    def let_in(self, port: int) -> None:
        """Lets it join the job of a master."""
        os.write(self._letting_in[1], f"{port:05d}".encode() * PROCESSES)

    def kill(self, rank: int) -> None:
        """Kills one of its processes."""
        os.kill(self.processes[rank], signal.SIGKILL)

    def ends(self) -> list[int]:
        """Waits for its end; returns the exit codes."""
        codes = [os.waitpid(pid, 0)[1] for pid in self.processes]
        return [os.waitstatus_to_exitcode(code) for code in codes]

    def results(self) -> list[dict[str, Any]]:
        """What its processes have written at their end."""
        paths = [self._folder / f"{self.name}-{rank}.json" for rank in range(PROCESSES)]
        return [json.loads(path.read_text(encoding="utf-8")) for path in paths]

    def _fork(self, rank: int, port: int) -> int:
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            master = int(os.read(self._letting_in[0], 5))
            result = self._train(rank, port, master)
            path = self._folder / f"{self.name}-{rank}.json"
            path.write_text(json.dumps(result), encoding="utf-8")
            code = 0
        except SystemExit as error:
            code = int(str(error.code))
        except BaseException as error:  # noqa: BLE001 - the test sees the exit code
            print(f"{self.name}, process {rank}: {error}")  # noqa: T201 - shown where the test fails
        finally:
            sys.stdout.flush()
            os._exit(code)

    def _train(self, rank: int, port: int, master: int) -> dict[str, Any]:
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=PROCESSES
        )
        mesh = init_device_mesh("cpu", (PROCESSES,))
        model = network(int(self.name[-1]))
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
        losses: dict[int, float] = {}
        received = _count_parts(in_parts=self._in_parts)

        def note(step: SyncStep) -> None:
            losses[step.step] = step.metrics["loss"]
            self.gates(step)

        settings = Settings(f"http://127.0.0.1:{master}", TOKEN, self.name, grace_s=5.0)
        member = Session(settings)
        optimizer = torch.optim.Adam(model.parameters(), 0.02)
        with Training(model, optimizer, member=member, on_step=note, **self._options) as training:
            loader = DataLoader(points(), batch_sampler=training.sampler)
            for step in training.steps(loader):
                for inputs, targets in step:
                    step.backward(loss_of(model, inputs, targets))
            result = training.result
        member.leave()
        whole = {name: t.full_tensor().tolist() for name, t in model.state_dict().items()}
        about = {"steps": result.steps, "whole": result.whole, "late": result.late}
        return {"losses": losses, "model": whole, "received": len(received), **about}


def _count_parts(*, in_parts: bool) -> list[str]:
    """Makes states large, if they are to be; returns a list that gets an entry for each part received."""
    received: list[str] = []
    write_slice = TorchReplica.write_slice

    def noted(self: TorchReplica, name: str, start: int, elements: Any) -> None:
        received.append(name)
        write_slice(self, name, start, elements)

    TorchReplica.write_slice = noted  # type: ignore[method-assign]  # in a process of its own
    parts.MIN_BYTES = 1 if in_parts else parts.MIN_BYTES
    StateSender.part_bytes = _PART_BYTES
    return received
