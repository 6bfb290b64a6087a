"""Builds the stand-in device for the torch in a folder. It needs g++; torch's wheel has the headers.

    python -m tests.support.standin build/torch build/standin

Programs that have both folders on their path see one accelerator, `torch.device("standin")`.
"""

import shutil
import subprocess
import sys
from pathlib import Path

NAME = "standin"
HERE = Path(__file__).parent


def build(torch: Path, folder: Path) -> None:
    """Compiles the device, and registers it as a backend that torch loads when it is imported."""
    package = folder / f"torch_{NAME}"
    package.mkdir(parents=True, exist_ok=True)
    headers = [torch / "torch/include", torch / "torch/include/torch/csrc/api/include"]
    command = ["g++", "-std=c++20", "-O1", "-fPIC", "-shared", *(f"-I{path}" for path in headers)]
    command += [str(HERE / "standin.cpp"), "-o", str(package / "standin.so")]
    command += [f"-L{torch / 'torch/lib'}", "-lc10", "-ltorch_cpu"]
    subprocess.run(command, check=True)  # noqa: S603 - fixed words
    shutil.copy(HERE / "module.py", package / "__init__.py")
    about = folder / f"torch_{NAME}-1.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch-{NAME}\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[torch.backends]\n{NAME} = torch_{NAME}:load\n")


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
