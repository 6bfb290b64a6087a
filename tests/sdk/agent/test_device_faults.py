"""Lines of frameworks about devices that cannot be used any more."""

import pytest
from edl.agent.device_faults import ErrorOutput

TORCH = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize(
    "line",
    [
        TORCH,
        "OSError: (External) CUDA error(719), unspecified launch failure.",
        "INTERNAL: Failed call to cuMemcpyDtoH: CUDA_ERROR_ILLEGAL_ADDRESS",
        "RuntimeError: NCCL error: ncclUnhandledCudaError: Call to CUDA function failed.",
        "[PG ID 0] ProcessGroupNCCL's watchdog thread terminated with exception: timeout",
    ],
)
def test_faults_are_known(line: str) -> None:
    """The words of torch, PaddlePaddle, XLA and NCCL."""
    output = ErrorOutput()
    output.add(f"step 3\n{line}\nmore\n".encode())
    assert output.fault == line


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "RESOURCE_EXHAUSTED: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "UserWarning: CUDA initialization: no device",
        "DistBackendError: NCCL communicator was aborted on rank 1",
    ],
)
def test_other_lines_are_none(line: str) -> None:
    """Memory that is short, and what a program may handle itself, end no process."""
    output = ErrorOutput()
    output.add(f"{line}\n".encode())
    output.end()
    assert (output.fault, output.last_line) == ("", line)


def test_lines_come_in_pieces() -> None:
    """Progress bars end with a carriage return; a line without end is cut, not kept for ever."""
    output = ErrorOutput()
    for piece in ("10 %\r", "CUDA er", "ror: launch failure", "\n\n"):
        output.add(piece.encode())
    assert output.fault == output.last_line == "CUDA error: launch failure"
    output.add(b"x" * 10_000)
    output.add(b"last")
    output.end()
    assert output.last_line == "last"
