"""One step as the program sees it: this member's micro-batches, and `backward` for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from edl.errors import DataError, RoundOver, is_transient, one_line
from edl.sync.plans import Assignment, Plan, Span
from edl.sync.replica import Micro
from edl.sync.step_flags import StepFlags
from edl.sync.step_reader import UnreadableTask
from edl.torch.batches import UnreadableError
from edl.torch.program_checks import check_loss


def add_gradient(loss: Any, weight: float, flags: StepFlags) -> str:
    """Adds a micro-batch's gradient to the step's gradient; returns a problem with it, or ""."""
    del flags
    (loss * weight).backward()
    return ""


@dataclass(frozen=True)
class StepCalls:
    """The functions that a step calls; built with keywords."""

    next_batch: Callable[[], Any]
    """Returns this member's next micro-batch, as the `DataLoader` made it."""
    micro: Callable[[int], Micro]
    """Returns the identity of the micro-batch with an index."""
    before_last: Callable[[], None] = lambda: None
    """Called before the last backward."""
    is_over: Callable[[], bool] = lambda: False
    """Returns whether a member is lost; then the rest of the step can be skipped, and it is repeated."""
    versions: Callable[[], object] = lambda: None
    """Returns a value that changes when the program changes a gradient."""
    backward: Callable[[Any, float, StepFlags], str] = add_gradient
    """Trains on a loss, given the micro-batch's share of the step's records and the member's flags.
    Returns a problem with the gradient, or ""."""


class MemberStep:
    """This member's part of a step; iterate over it once, and call `backward` for each batch.

    The step may have no batch if there are more members than micro-batches. A step in which a
    member is lost is repeated, possibly with other batches.
    """

    def __init__(self, plan: Plan, assignment: Assignment, calls: StepCalls) -> None:
        """Reads nothing yet.

        Args:
            plan: The plan of all members' records.
            assignment: This member's micro-batches.
            calls: The functions that the step calls.
        """
        self._plan, self._assignment, self._calls = plan, assignment, calls
        self.is_cut_short = False
        self._last_versions = calls.versions()
        self._current: tuple[int, int] | None = None
        self._trained = 0
        self.micro: Micro | None = None
        """The identity of the last yielded micro-batch."""
        self.flags = StepFlags()
        self.problem = ""
        self.unreadable: UnreadableTask | None = None

    @property
    def epoch(self) -> int:
        """The epoch, from 0."""
        return self._plan.spans[0].lease.epoch

    @property
    def share(self) -> float:
        """This member's share of the step's records."""
        return sum(_size(spans) for _, spans in self._assignment) / self._plan.size

    def __iter__(self) -> Iterator[Any]:
        """Yields this member's micro-batches, and seeds torch's random numbers for each."""
        for index, spans in self._assignment:
            self._check_trained()
            self.is_cut_short = self.is_cut_short or self._calls.is_over()
            if self.is_cut_short:
                return
            batch = self._read(index, spans)
            if self.unreadable is not None:
                return
            self._begin_micro(index, spans)
            yield batch
        self._check_trained()

    def backward(self, loss: Any, **metrics: float) -> None:
        """Adds the gradient of a micro-batch, weighted by its share of the step's records.

        Args:
            loss: The mean loss of the micro-batch, a tensor of one number.
            metrics: Other means over the micro-batch, for the job's status.

        Raises:
            DataError: No micro-batch waits for its backward, the loss has no gradient, or the program has
                changed a gradient.
        """
        if self._current is None:
            raise DataError("step.backward was called twice for a batch, or before the first one")
        (index, size), self._current = self._current, None
        if self._calls.is_over():
            self.is_cut_short = True
            return
        check_loss(loss)
        self._check_unchanged()
        weight = size / self._plan.size
        value = float(loss.detach())
        self.flags.add({**metrics, "loss": value}, weight)
        if not math.isfinite(value):
            self.flags.nan, self.problem = 1.0, f"loss is {value} in micro-batch {index}"
        self._trained += 1
        try:
            if self._trained == len(self._assignment):
                self._calls.before_last()
            problem = self._calls.backward(loss, weight, self.flags)
        except RoundOver:
            self.is_cut_short = True
        else:
            if problem:
                self.flags.nan, self.problem = 1.0, problem
        self._last_versions = self._calls.versions()

    def end(self) -> UnreadableTask | None:
        """Checks that the program has trained all micro-batches; returns the unreadable task, if any.

        Raises:
            DataError: The program has left out a micro-batch.
        """
        self._check_trained()
        self._check_unchanged()
        if self.unreadable is None and self._trained < len(self._assignment):
            raise DataError(
                f"the program has trained {self._trained} of {len(self._assignment)} micro-batches of a "
                "step: iterate over all of it, and call step.backward(loss) for each"
            )
        return self.unreadable

    def _read(self, index: int, spans: tuple[Span, ...]) -> Any:
        """Returns the next micro-batch; sets `unreadable` if it cannot be read."""
        seed_torch(self._calls.micro(index).seed)  # the data set's transforms draw random numbers
        try:
            return self._calls.next_batch()
        except DataError:
            raise
        except UnreadableError as error:
            self.unreadable = error.task
        except Exception as error:  # noqa: BLE001 - the program's data set may raise any error
            lease, reason = (spans or self._plan.spans)[0].lease, one_line(error)
            self.unreadable = UnreadableTask(lease, reason, None, is_transient(error))
        self.flags.unreadable = 1.0
        return None

    def _begin_micro(self, index: int, spans: tuple[Span, ...]) -> None:
        self._current = index, _size(spans)
        self.micro = self._calls.micro(index)
        seed_torch(self.micro.seed)

    def _check_unchanged(self) -> None:
        if self._trained and self._calls.versions() != self._last_versions:
            raise DataError(
                "the loop has changed gradients within a step (as clipping and zero_grad(set_to_none=False) do), "
                "and this trainer has only a part of them: leave zero_grad out, and clip in before_step="
            )

    def _check_trained(self) -> None:
        if self._current is not None:
            raise DataError(
                "step.backward(loss) was not called for a micro-batch: its gradient is lost"
            )


def _size(spans: tuple[Span, ...]) -> int:
    return sum(span.count for span in spans)


def seed_torch(seed: int) -> None:
    """Does the same as `torch.manual_seed`, but faster if CUDA is available and not initialized.

    In that case, `torch.manual_seed` takes 0.3 ms, because it formats its caller's stack for a later
    initialization. Here, CUDA is seeded for the next micro-batch after the initialization.
    """
    device = torch.accelerator.current_accelerator()
    if device is None or (device.type == "cuda" and not torch.cuda.is_initialized()):
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
