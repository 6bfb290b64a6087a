"""Converts JAX pytrees to numpy arrays, which members sum and receive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from edl.collective import Ring
from edl.errors import DataError

_LOW = 0xFFFFFFFF


def sum_over(ring: Ring, tree: Any) -> Any:
    """Sums a pytree of numbers over the members of a ring, with at most two all-reduces.

    Narrow types are summed as float32, and integers exactly; of booleans, the true ones are counted.

    Args:
        ring: The connections of the round.
        tree: Numbers and arrays, of the same structure, types and shapes in all members.

    Returns:
        A pytree of the same structure, with arrays of JAX; the same bits in all members.

    Raises:
        RoundOver: The round is over.
    """
    leaves, structure = jax.tree_util.tree_flatten(tree)
    arrays = [_as_array(leaf) for leaf in leaves]
    numbers = [_encode(array) for array in arrays]
    for width in (np.float32, np.float64):
        places = [place for place, each in enumerate(numbers) if each.dtype == width and each.size]
        if not places:
            continue
        flat = np.concatenate([numbers[place] for place in places])
        ring.all_reduce(flat)
        ends = np.cumsum([numbers[place].size for place in places])
        for place, part in zip(places, np.split(flat, ends[:-1])):
            numbers[place] = part
    totals = [jnp.asarray(_decode(each, array)) for each, array in zip(numbers, arrays)]
    return jax.tree_util.tree_unflatten(structure, totals)


def as_bytes(tree: Any) -> list[np.ndarray]:
    """Returns one array per leaf, which holds the leaf's bytes."""
    leaves = jax.tree_util.tree_leaves(tree)
    return [np.ascontiguousarray(leaf).reshape(-1).view(np.uint8) for leaf in leaves]


def from_bytes(arrays: Sequence[np.ndarray], like: Any) -> Any:
    """Returns a pytree of numpy arrays that have the given bytes.

    Args:
        arrays: The arrays that `as_bytes` returned.
        like: A pytree of the same structure, types and shapes.
    """
    leaves, structure = jax.tree_util.tree_flatten(like)
    own = [np.asarray(leaf) for leaf in leaves]
    received = [raw.view(leaf.dtype).reshape(leaf.shape) for raw, leaf in zip(arrays, own)]
    return jax.tree_util.tree_unflatten(structure, received)


def signature(tree: Any) -> str:
    """Describes structure, types and shapes of a pytree.

    Raises:
        DataError: A leaf cannot be sent to other members.
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


def _as_array(leaf: Any) -> np.ndarray:
    """Returns a leaf as an array of the type that JAX gives it; booleans become int32."""
    array = np.asarray(jnp.asarray(leaf))
    return array.astype(np.int32) if array.dtype == np.bool_ else array


def _encode(array: np.ndarray) -> np.ndarray:
    """Returns an array as a flat array of float32 or float64."""
    flat, kind = array.reshape(-1), array.dtype
    if jnp.issubdtype(kind, jnp.complexfloating):
        return np.ascontiguousarray(flat).view(flat.real.dtype)
    if jnp.issubdtype(kind, jnp.floating):
        return flat.astype(np.float64 if kind == np.float64 else np.float32)
    # sums of 32-bit halves are exact in float64
    whole = flat.astype(np.int64)
    return np.concatenate([whole >> 32, whole & _LOW]).astype(np.float64)


def _decode(numbers: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Converts numbers that `_encode` returned to an array with the type and shape of `like`."""
    if jnp.issubdtype(like.dtype, jnp.complexfloating):
        return numbers.view(like.dtype).reshape(like.shape)
    if jnp.issubdtype(like.dtype, jnp.floating):
        return numbers.astype(like.dtype, copy=False).reshape(like.shape)
    high, low = numbers.astype(np.int64).reshape(2, -1)
    return ((high << 32) + low).astype(like.dtype).reshape(like.shape)
