"""Encodes a program's state: dicts, lists, numbers and strings as JSON, arrays and tensors as raw bytes.

The format cannot hold code, so data from another process can be decoded safely.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from edl.errors import CheckpointError

_LENGTH = struct.Struct("!Q")
_ALIGNMENT = 64
_MAX_HEADER = 256 << 20
_MAX_WRITE = 1 << 30
_SCALARS = (str, int, float, type(None))


@dataclass
class Encoded:
    """A state whose layout is known, but whose arrays have not been copied yet."""

    header: bytes
    """The length of the JSON, then the JSON, which has everything except the arrays' contents."""
    size: int
    """Total size in bytes."""
    arrays: list[tuple[int, Callable[[], Any]]] = field(default_factory=list)
    """Offset of each array, and a function that returns its bytes."""

    def write(self, descriptor: int) -> None:
        """Writes the state into a file of `size` bytes."""
        _write_at(descriptor, memoryview(self.header), 0)
        for offset, view in self.arrays:
            _write_at(descriptor, view(), offset)


def encode(state: Any) -> Encoded:
    """Determines the layout of a state; `Encoded.write` reads the arrays later.

    Args:
        state: Dicts, lists, tuples, numbers, strings, None, numpy arrays, torch tensors, and objects
            with a method `numpy`.

    Raises:
        CheckpointError: The state holds an object of another type; the message says where the object is.
    """
    specs: list[dict[str, Any]] = []
    views: list[Callable[[], Any]] = []
    tree = _encode(state, "state", specs, views)
    text = json.dumps({"tree": tree, "arrays": specs}, separators=(",", ":")).encode()
    header = _LENGTH.pack(len(text)) + text
    encoded, end = Encoded(header, 0), len(header)
    for spec, view in zip(specs, views):
        offset = _aligned(end)
        encoded.arrays.append((offset, view))
        end = offset + int(spec["bytes"])
    encoded.size = end
    return encoded


def decode(descriptor: int) -> Any:
    """Reads a state that `Encoded.write` has written; its tensors are on the CPU.

    Raises:
        CheckpointError: The data is damaged, or holds torch tensors although torch is not imported.
    """
    try:
        (length,) = _LENGTH.unpack(os.pread(descriptor, _LENGTH.size, 0))
        header = json.loads(os.pread(descriptor, min(length, _MAX_HEADER), _LENGTH.size))
        arrays, end = [], _LENGTH.size + length
        for spec in header["arrays"]:
            offset = _aligned(end)
            arrays.append(_read_array(descriptor, spec, offset))
            end = offset + int(spec["bytes"])
        return _decode(header["tree"], arrays)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        raise CheckpointError(
            f"the snapshot is damaged: {type(error).__name__}: {error}"
        ) from error


def _encode(
    node: Any, where: str, specs: list[dict[str, Any]], views: list[Callable[[], Any]]
) -> Any:
    if isinstance(node, dict):
        for key in node:
            if not isinstance(key, (str, int)):
                raise CheckpointError(f"{where} has the key {key!r:.60}: use strings or integers")
        items = node.items()
        return {"d": [[k, _encode(v, f"{where}[{k!r:.60}]", specs, views)] for k, v in items]}
    if isinstance(node, (list, tuple)):
        kind = "l" if isinstance(node, list) else "t"
        return {kind: [_encode(v, f"{where}[{i}]", specs, views) for i, v in enumerate(node)]}
    if type(node) in (*_SCALARS, bool):
        return node
    described = _describe(node)
    if described is None:
        raise CheckpointError(
            f"{where} is of type {type(node).__name__}, which snapshots do not support: leave it out, "
            "or save its state_dict()"
        )
    spec, view = described
    specs.append(spec)
    views.append(view)
    return {"a": len(specs) - 1}


def _describe(node: Any) -> tuple[dict[str, Any], Callable[[], Any]] | None:
    """Returns an array's kind, type, shape and size, and a function that returns its bytes.

    Returns None for an object that is not an array of plain numbers.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(node, torch.Tensor):
        spec = {"kind": "torch", "type": str(node.dtype).split(".")[1], "shape": list(node.shape)}
        size = node.numel() * node.element_size()
        return {**spec, "bytes": size}, lambda: _bytes_of_tensor(torch, node)
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if not isinstance(node, (numpy.ndarray, numpy.generic)) and hasattr(node, "numpy"):
        node = node.numpy()
    if not isinstance(node, (numpy.ndarray, numpy.generic)) or node.dtype.hasobject:
        return None
    array = numpy.ascontiguousarray(node)
    spec = {"kind": "numpy", "type": array.dtype.str, "shape": list(node.shape)}
    return {**spec, "bytes": array.nbytes}, lambda: array.reshape(-1).view(numpy.uint8).data


def _bytes_of_tensor(torch: Any, tensor: Any) -> Any:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data


def _read_array(descriptor: int, spec: dict[str, Any], offset: int) -> Any:
    kind, shape, size = spec["kind"], [int(length) for length in spec["shape"]], int(spec["bytes"])
    if kind == "torch":
        torch = sys.modules.get("torch")
        if torch is None:
            raise CheckpointError("the snapshot holds tensors: import torch before loading it")
        dtype = getattr(torch, spec["type"])
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"{spec['type']!r:.60} is not a torch.dtype")
        array = torch.empty(shape, dtype=dtype)
        flat = array.reshape(-1).view(torch.uint8).numpy()
    else:
        import numpy as np  # noqa: PLC0415 - only states with arrays need it

        array = np.empty(shape, np.dtype(str(spec["type"])))
        flat = array.reshape(-1).view(np.uint8)
    if flat.nbytes != size:
        raise ValueError(f"an array has {size} bytes, but its shape needs {flat.nbytes}")
    _read_at(descriptor, flat.data, offset)
    return array


def _decode(node: Any, arrays: list[Any]) -> Any:
    if not isinstance(node, dict):
        return node
    ((kind, content),) = node.items()
    if kind == "a":
        return arrays[content]
    if kind == "d":
        return {key: _decode(value, arrays) for key, value in content}
    values = [_decode(value, arrays) for value in content]
    return tuple(values) if kind == "t" else values


def _write_at(descriptor: int, view: Any, offset: int) -> None:
    view = view.cast("B") if view.nbytes else view[:0]
    while view.nbytes:
        written = os.pwrite(descriptor, view[:_MAX_WRITE], offset)
        view, offset = view[written:], offset + written


def _read_at(descriptor: int, view: Any, offset: int) -> None:
    while view.nbytes:
        count = os.preadv(descriptor, [view[:_MAX_WRITE]], offset)
        if not count:
            raise ValueError("it is truncated")
        view, offset = view[count:], offset + count


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
