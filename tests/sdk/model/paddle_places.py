"""Facts about tensors that are not on the CPU; run by `test_paddle.py`, which has no GPU."""

from typing import Any

import numpy as np
import paddle
from edl.model.paddle.flat_buffer import FlatBuffer

from tests.sdk.model.paddle_facts import check


class _DevicePlace:
    """Stands in for the place of a GPU."""

    def is_cpu_place(self) -> bool:
        return False


class _DeviceTensor:
    """A tensor on a device: it can be copied, and its address must not be used."""

    def __init__(self, values: Any) -> None:
        self.place, self.values = _DevicePlace(), values

    def numpy(self) -> Any:
        return self.values

    def copy_(self, source: Any, blocking: bool) -> None:
        assert blocking
        self.values = source.numpy().copy()


def tensors_of_another_device_are_copied_by_place() -> None:
    """Beside one on the CPU; nothing asks for an address."""
    device = _DeviceTensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    host = paddle.to_tensor(np.full(2, 9, np.float32))
    buffer = FlatBuffer([[2, 3], [2], [1]])
    flat = np.full(9, -1, np.float32)
    buffer.read([device, host, None], flat)
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 9, 9, 0]

    buffer.write(flat + 1, [device, host, paddle.zeros([1])])
    assert device.values.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert host.numpy().tolist() == [10, 10]


def paddle_copies_by_place_as_we_use_it() -> None:
    """What the copy for other devices calls, with the only place that there is here: the CPU's."""
    parameter = paddle.ones([2, 3])
    parameter.stop_gradient = False
    (parameter * 2).sum().backward()
    for tensor in (parameter.grad, parameter):
        address = tensor.data_ptr()
        array = np.full((2, 3), 7, np.float32)
        tensor.copy_(paddle.to_tensor(array, place=paddle.CPUPlace()), True)
        assert tensor.place.is_cpu_place()
        assert (tensor.data_ptr(), tensor.numpy().tolist()) == (address, array.tolist())


FACTS = (tensors_of_another_device_are_copied_by_place, paddle_copies_by_place_as_we_use_it)

if __name__ == "__main__":
    check(FACTS)
