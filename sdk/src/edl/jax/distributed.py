"""Leaves a group of JAX processes and joins another one, for which JAX has no public functions.

`jax.distributed.initialize` starts the coordination service in rank 0, and JAX ends all processes that
lose it. The calls here are those of jax 0.10 without that.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.extend.backend
import jax.numpy as jnp
import numpy as np
from jax._src import distributed, xla_bridge
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import _jax

from edl import clock
from edl.errors import DataError, RoundOver
from edl.jax.relay import ServiceRelay
from edl.jax.service import FOREVER_S

log = logging.getLogger("edl")

_kept: list[Any] = []
"""What calls that never return may still use. It is not destroyed at exit either: that would wait for them."""
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_kept))
_LEAST_LENGTH = 4_096
"""XLA runs a smaller sum in the thread that asks for it, which cannot be left then."""
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 50e-6, 5e-3


class Processes:
    """The processes of one round as a process of JAX sees them: rank, number, and their collective sum."""

    def __init__(self, rank: int, count: int) -> None:
        """Makes no call yet.

        Args:
            rank: This process's.
            count: Number of processes.
        """
        self.rank, self.count = rank, count
        self._client: Any = None
        self._relay: Any = None
        self._is_connected = self._is_left = False
        self._mesh: Any = None
        self._sum: Callable[[Any], Any] | None = None

    def join(self, address: str) -> None:
        """Connects to the coordination service; blocks until all processes have.

        JAX makes its backend at the next computation, over these processes.
        """
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        self._relay = ServiceRelay(address)
        self._client = _jax.get_distributed_runtime_client(
            self._relay.address,
            self.rank,
            init_timeout=FOREVER_S,
            shutdown_timeout=1,
            heartbeat_timeout=FOREVER_S,
            shutdown_on_destruction=False,
            use_compression=True,
        )
        self._client.connect()
        self._is_connected = True

    def use(self) -> None:
        """Makes them JAX's processes; arrays of earlier ones are gone."""
        state = distributed.global_state
        state.client, state.process_id, state.num_processes = self._client, self.rank, self.count
        _clear()  # a call that was left behind may have made a backend of this process alone

    def leave(self, *, is_broken: bool) -> None:
        """Ends JAX's backends: arrays on them are gone, and functions are compiled again.

        Args:
            is_broken: Whether a collective may still be under way, whose backend then lives on.
        """
        self._is_left = True
        self._leave_service()  # first: a backend that is being made waits for all processes, and others for it
        if is_broken and xla_bridge.backends_are_initialized():
            _kept.append((xla_bridge.get_backend(), self._client))
        state = distributed.global_state
        state.client, state.process_id, state.num_processes = None, 0, 1
        _clear()

    def _leave_service(self) -> None:
        if not self._is_connected:
            return  # a thread may still be about to connect
        self._is_connected = False
        try:
            self._client.shutdown()  # or JAX would end this process with its connection
        except Exception as error:  # noqa: BLE001 - it raises its own types, where others are lost
            log.debug("the coordination service was left: %s", error)
            _kept.append((self._client, self._relay))
        else:
            self._relay.close()

    def sum(self, tree: Any) -> Any:
        """Sums a pytree of numbers over all processes, in one collective for each type.

        Returns:
            A pytree of this process's own arrays; blocks until they are there.

        Raises:
            RoundOver: `leave` was called meanwhile.
        """
        leaves, structure = jax.tree_util.tree_flatten(tree)
        arrays = [jnp.asarray(_as_number(leaf)) for leaf in leaves]
        totals: list[Any] = [None] * len(arrays)
        for dtype in sorted({str(array.dtype) for array in arrays}):
            places = [place for place, array in enumerate(arrays) if str(array.dtype) == dtype]
            flat = self._sum_flat(jnp.concatenate([arrays[place].reshape(-1) for place in places]))
            offset = 0
            for place in places:
                size = arrays[place].size
                totals[place] = flat[offset : offset + size].reshape(arrays[place].shape)
                offset += size
        return jax.block_until_ready(jax.tree_util.tree_unflatten(structure, totals))

    def _sum_flat(self, flat: Any) -> Any:
        self._check()
        length = flat.size
        if length < _LEAST_LENGTH:
            flat = jnp.pad(flat, (0, _LEAST_LENGTH - length))
        if self._sum is None:
            firsts: dict[int, Any] = {}
            for device in jax.devices():
                firsts.setdefault(device.process_index, device)
            self._mesh = Mesh(np.array([firsts[rank] for rank in sorted(firsts)]), ("members",))
            replicated = NamedSharding(self._mesh, PartitionSpec())
            self._sum = jax.jit(partial(jnp.sum, axis=0), out_shardings=replicated)
        own = jax.device_put(flat[None], self._mesh.devices[self.rank])
        sharding = NamedSharding(self._mesh, PartitionSpec("members"))
        shape = (self.count, *flat.shape)
        self._check()
        total = self._sum(jax.make_array_from_single_device_arrays(shape, sharding, [own]))
        return self._wait_for(total.addressable_data(0))[:length]

    def _wait_for(self, array: Any) -> Any:
        """Waits in Python: a thread that waits in JAX aborts the process if it wakes while this one exits."""
        since_s = clock.monotonic_s()
        while not array.is_ready():
            self._check()
            pause_s = (clock.monotonic_s() - since_s) / 8
            time.sleep(min(max(pause_s, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S))
        return jax.block_until_ready(array)  # raises what has failed

    def _check(self) -> None:
        """Raises in a thread that was left behind: it must not take part in another round."""
        if self._is_left:
            raise RoundOver("this round is over")


def _clear() -> None:
    jax.clear_caches()
    jax.extend.backend.clear_backends()


def to_host(tree: Any) -> Any:
    """Returns a pytree with copies of its arrays on the host."""
    return jax.tree_util.tree_map(np.array, tree)


def signature(tree: Any) -> str:
    """Describes structure, types and shapes of a pytree.

    Raises:
        DataError: It holds something that members cannot be given.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    shapes = []
    for path, leaf in leaves:
        place = jax.tree_util.keystr(path) or "it"
        if jax.dtypes.issubdtype(getattr(leaf, "dtype", np.int32), jax.dtypes.prng_key):
            raise DataError(
                f"state: {place} is a key of random numbers: keep jax.random.key_data(key) there, and make the key "
                "with jax.random.wrap_key_data where it is used"
            )
        array = np.asarray(leaf)
        if array.dtype == np.object_ or array.dtype.kind in "SU":
            raise DataError(
                f"state: {place} is a {type(leaf).__name__}: keep numbers and arrays there, and the rest beside it"
            )
        shapes.append((str(array.dtype), array.shape))
    return f"{structure} {shapes}"


def as_words(leaf: Any) -> np.ndarray:
    """Returns the bytes of a number or an array as whole numbers of 32 bits, which JAX keeps as they are.

    It would make other numbers of 64 bits: larger ones wrap around, and fractions are rounded.
    """
    raw = np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)
    words: np.ndarray = np.pad(raw, (0, -raw.size % 4)).view(np.int32)
    return words


def from_words(words: Any, like: Any) -> np.ndarray:
    """Returns what `as_words` was given.

    Args:
        words: What it returned.
        like: Of the same type and shape.
    """
    own = np.asarray(like)
    raw = np.array(words).view(np.uint8)[: own.nbytes]
    return raw.view(own.dtype).reshape(own.shape)


def _as_number(leaf: Any) -> Any:
    """Truth values are counted."""
    is_truth = isinstance(leaf, bool) or getattr(leaf, "dtype", None) == np.bool_
    return np.asarray(leaf, np.int32) if is_truth else leaf
