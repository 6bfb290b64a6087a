"""Gradients in buckets, which are summed over all members while backward still runs.

torch's DistributedDataParallel does the same (Li et al. 2020, "PyTorch Distributed"), but its buckets
depend on the steps that a process has made, so a newcomer's buckets would not match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from edl.errors import DataError, RoundOver, TrainingError
from edl.torch.pods.shards import as_shard, local

_FIRST_BYTES, _BUCKET_BYTES = 1 << 20, 25 << 20
"""The sizes that DistributedDataParallel uses; the first bucket is small, so that sums begin early."""

Sum = Callable[[Any], Any]
"""Begins the sum of a tensor over all members, in place; returns a `torch.distributed.Work`."""


class _Bucket:
    """Parameters whose gradients are views of one tensor."""

    def __init__(self, parameters: Sequence[Any], tail: int) -> None:
        first = parameters[0]
        size = sum(local(parameter).numel() for parameter in parameters)
        flat = torch.zeros(size + tail, dtype=first.dtype, device=first.device)
        self._size = size
        self.views: dict[Any, Any] = dict.fromkeys(parameters)
        self.missing: set[Any] = set()
        self.began = False
        self.use(flat)

    def use(self, flat: Any) -> None:
        """Makes the gradients views of a tensor."""
        self.flat, self.gradient, self.tail = flat, flat[: self._size], flat[self._size :]
        offset = 0
        for parameter in self.views:
            part = local(parameter)
            end = offset + part.numel()
            self.views[parameter] = as_shard(flat[offset:end].view_as(part), parameter)
            offset = end


class GradientBuckets:
    """The gradients of a model; used by one thread, and by autograd's threads during backward."""

    def __init__(self, named_parameters: Iterable[tuple[str, Any]], tail: int) -> None:
        """Creates the buckets, and makes the parameters' gradients views of them.

        Args:
            named_parameters: The model's parameters, with their names.
            tail: Number of additional float32 numbers, which are stored and summed after the last
                gradient.

        Raises:
            TrainingError: No parameter requires a gradient.
        """
        names = {parameter: name for name, parameter in named_parameters if parameter.requires_grad}
        if not names:
            raise TrainingError(
                "the model has no parameter that is trained: set requires_grad of some"
            )
        self._names = names
        groups = list(_groups(list(names)))
        self._buckets = [_Bucket(group, 0) for group in groups[:-1]]
        has_float_end = groups[-1][0].dtype == torch.float32
        self._buckets.append(_Bucket(groups[-1], tail if has_float_end else 0))
        self._tail_apart = torch.zeros(
            0 if has_float_end else tail, dtype=torch.float32, device=groups[-1][0].device
        )
        self._bucket_of = {p: bucket for bucket in self._buckets for p in bucket.views}
        self._begin: Sum | None = None
        self._may_end = False
        self._works: list[Any] = []
        self._error: RoundOver | None = None
        self._hooks = [p.register_post_accumulate_grad_hook(self._accumulated) for p in names]
        self.clear()

    @property
    def size(self) -> int:
        """Number of values of the gradient."""
        return sum(bucket.gradient.numel() for bucket in self._buckets)

    @property
    def tail(self) -> Any:
        """The additional float32 numbers, which are summed after the last gradient."""
        return self._tail_apart if self._tail_apart.numel() else self._buckets[-1].tail

    def move(self) -> None:
        """Gives the gradient new memory, because an abandoned sum may still write into the old memory."""
        for bucket in self._buckets:
            bucket.use(torch.zeros_like(bucket.flat))
        self._tail_apart = torch.zeros_like(self._tail_apart)
        self._forget()

    def clear(self) -> None:
        """Sets the gradient to zero, and forgets started sums."""
        for bucket in self._buckets:
            bucket.flat.zero_()
        self._forget()

    def _forget(self) -> None:
        """Forgets started sums."""
        self._begin, self._works, self._error = None, [], None
        for bucket in self._buckets:
            bucket.began = False
        self.attach()

    def attach(self) -> None:
        """Sets the views as the parameters' gradients again if the program has dropped them.

        After `zero_grad`, a parameter that this member's backward does not reach has no gradient. The
        optimizer would skip the parameter, although other members have a gradient for it.
        """
        for parameter, view in self.views():
            if parameter.grad is not view:
                parameter.grad = view

    def begin(self, add: Sum, *, may_end: bool = False) -> None:
        """Lets the next backward sum each bucket as soon as the bucket is full.

        Args:
            add: Begins a sum.
            may_end: Whether backward already raises `RoundOver` if a sum cannot begin. If False,
                only `finish` raises it.
        """
        self._begin, self._may_end = add, may_end
        for bucket in self._buckets:
            bucket.missing = set(bucket.views)

    def finish(self, add: Sum) -> list[Any]:
        """Begins the remaining sums, including that of `tail`; returns all works, in order.

        Raises:
            RoundOver: A member is lost.
        """
        self._begin = None
        if self._error is not None:
            raise self._error
        for bucket in self._buckets:
            self._start(bucket, add)
        if self._tail_apart.numel():
            self._works.append(add(self.tail))
        return self._works

    def check(self) -> None:
        """Checks that gradients are still views of the buckets.

        Raises:
            DataError: The program has converted the model, which has also replaced the gradients.
        """
        for bucket in self._buckets:
            views = (local(view) for view in bucket.views.values())
            first = next((view for view in views if view.numel()), None)  # a shard may be empty
            if first is not None and first.data_ptr() != bucket.flat.data_ptr():
                raise DataError(
                    "the model was converted to another type or device after Training was created: convert it "
                    "before"
                )

    def versions(self) -> list[int]:
        """Returns numbers that change when a gradient changes, except for gradients that are being summed.

        Sums may change gradients at any time, because gloo copies a GPU's sums back on another thread.
        """
        own = (bucket.flat for bucket in self._buckets if not bucket.began)
        return [flat._version for flat in own]  # noqa: SLF001 - torch has no public version counter

    def views(self) -> Iterator[tuple[Any, Any]]:
        """Yields each parameter with the part of a bucket that is its gradient."""
        for bucket in self._buckets:
            yield from bucket.views.items()

    def gradients(self) -> list[Any]:
        """Returns flat tensors that hold the whole gradient."""
        return [bucket.gradient for bucket in self._buckets]

    def _numbers(self) -> list[Any]:
        """Returns the gradients as real tensors, because conversions would drop imaginary parts."""
        return [torch.view_as_real(g) if g.is_complex() else g for g in self.gradients()]

    def is_finite(self) -> bool:
        """Returns whether all values are finite."""
        sums = [numbers.sum(dtype=torch.float32) for numbers in self._numbers()]
        if bool(torch.isfinite(torch.stack([total.to(sums[0].device) for total in sums])).all()):
            return True
        return all(bool(torch.isfinite(gradient).all()) for gradient in self.gradients())

    def close(self) -> None:
        """Removes the hooks."""
        for hook in self._hooks:
            hook.remove()

    def _accumulated(self, parameter: Any) -> None:
        """Called by autograd when a parameter's gradient is complete."""
        bucket = self._bucket_of[parameter]
        view = bucket.views[parameter]
        if parameter.grad is not view:  # the program called zero_grad(set_to_none=True)
            view.add_(parameter.grad)
            parameter.grad = view
        if self._begin is None:
            return
        if bucket.began:
            name = self._names[parameter]
            raise TrainingError(
                f"the gradient of {name} was computed twice in one backward: use activation checkpoints "
                "with use_reentrant=False, and one backward for each micro-batch"
            )
        bucket.missing.discard(parameter)
        try:
            self._start_complete(self._begin)
        except RoundOver as error:  # `finish` raises it outside the program's code
            self._begin, self._error = None, error
            if self._may_end:
                raise

    def _start_complete(self, add: Sum) -> None:
        """Begins the sums of the next full buckets, in the same order in all members."""
        for bucket in self._buckets[:-1]:  # `finish` sums the last bucket, with the tail
            if bucket.missing:
                return
            self._start(bucket, add)

    def _start(self, bucket: _Bucket, add: Sum) -> None:
        if not bucket.began:
            bucket.began = True
            if bucket.flat.numel():  # a process may have no part of sharded parameters
                self._works.append(add(bucket.flat))


def _groups(parameters: list[Any]) -> Iterable[list[Any]]:
    """Groups parameters into buckets, roughly in the order in which backward reaches them."""
    group: list[Any] = []
    used, limit = 0, _FIRST_BYTES
    for parameter in reversed(parameters):
        size = local(parameter).numel() * parameter.element_size()
        last = group[-1] if group else parameter
        is_other = (parameter.dtype, parameter.device) != (last.dtype, last.device)
        if group and (is_other or used + size > limit):
            yield group
            group, used, limit = [], 0, _BUCKET_BYTES
        group.append(parameter)
        used += size
    yield group
