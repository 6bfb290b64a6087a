"""Stands in for the CUDA libraries that torch's ordinary wheel names, so that it runs on CPUs without them.

    python -m tests.support.torch_stubs build/torch

The wheel's libraries are linked against CUDA's, 2.4 GB of packages, of which a machine without GPU calls
nothing. For each of them this makes a library with the symbols that the wheel's libraries take from it;
each reports that there is no device. It needs gcc and readelf.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

_NEEDED = re.compile(r"\(NEEDED\)\s+Shared library: \[(.+?)\]")
_VERSION_FILE = re.compile(r"Version: 1\s+File: (\S+)\s+Cnt")
_VERSION_NAME = re.compile(r"Name: (\S+)\s+Flags")
_UNDEFINED = re.compile(r"\b(FUNC|OBJECT|NOTYPE)\s+GLOBAL\s+DEFAULT\s+UND\s+(\w+)(?:@(\S+))?")
_DEFINED = re.compile(r"\b(?:GLOBAL|WEAK|UNIQUE)\s+(?:DEFAULT|PROTECTED)\s+\d+\s+(\w+)")
_NO_DEVICE = 100
"""The value of cudaErrorNoDevice and of CUDA_ERROR_NO_DEVICE."""
_OF_CUDA = re.compile(r"lib(cu|nv|nccl)")
_SYMBOL_OF_CUDA = re.compile(r"_*(cu|nv|nccl)", re.IGNORECASE)
"""Other symbols without a version are those of Python."""


def read(*words: str) -> str:
    """Returns what readelf prints of a library."""
    command = ["readelf", "-W", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 - fixed words


def missing_symbols(libraries: list[Path]) -> dict[str, dict[str, set[str]]]:
    """Library of CUDA -> version -> symbols that these libraries take from it."""
    defined = {
        name for path in libraries for name in _DEFINED.findall(read("--dyn-syms", path.as_posix()))
    }
    missing: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in libraries:
        needed = [
            name for name in _NEEDED.findall(read("-d", path.as_posix())) if _OF_CUDA.match(name)
        ]
        if not needed:
            continue
        for name in needed:
            missing[name][""].update()  # also those of which nothing is taken are loaded
        file_of: dict[str, str] = {}
        for file in re.split(r"\n\s+(?=\w+: Version: 1)", read("-V", path.as_posix())):
            if (match := _VERSION_FILE.search(file)) is not None:
                file_of |= dict.fromkeys(_VERSION_NAME.findall(file), match[1])
        for _, symbol, version in _UNDEFINED.findall(read("--dyn-syms", path.as_posix())):
            library = file_of.get(version, "")
            if _OF_CUDA.match(library):
                missing[library][version].add(symbol)
            elif not version and _SYMBOL_OF_CUDA.match(symbol) and symbol not in defined:
                missing[_library_of(symbol, needed)][""].add(symbol)
    return missing


def _library_of(symbol: str, needed: list[str]) -> str:
    """The library that has a symbol without a version, by its prefix; any, where none fits."""
    fitting = [name for name in needed if symbol.lower().startswith(name[3:].split(".")[0].lower())]
    return max(fitting, key=len, default=needed[0])


def build(library: str, versions: dict[str, set[str]], folder: Path) -> None:
    """Compiles one library; a symbol without a version is in none of its versions."""
    symbols = sorted(set().union(*versions.values()))
    with tempfile.TemporaryDirectory() as scratch:
        code, script = Path(scratch, "stub.c"), Path(scratch, "stub.map")
        lines = [f"long {name}(void) {{ return {_result(name)}; }}" for name in symbols]
        code.write_text("\n".join(lines) + "\n", encoding="utf-8")
        nodes = [
            f"{version} {{ global: {' '.join(f'{name};' for name in sorted(names))} }};"
            for version, names in versions.items()
            if version and names
        ]
        script.write_text("\n".join(nodes) + "\n", encoding="utf-8")
        command = [
            "gcc",
            "-shared",
            "-fPIC",
            "-w",
            f"-Wl,-soname,{library}",
            "-o",
            str(folder / library),
        ]
        command += [str(code), *([f"-Wl,--version-script={script}"] if nodes else [])]
        subprocess.run(command, check=True)  # noqa: S603 - fixed words


def _result(symbol: str) -> int:
    """What a function returns; those that register code are called when a library is loaded."""
    return 0 if symbol.startswith("__cuda") else _NO_DEVICE


def main() -> None:
    """Makes the libraries, beside those of the torch in a folder, where the linker looks first."""
    folder = Path(*sys.argv[1:2], "torch", "lib")
    if not folder.is_dir():
        sys.exit(
            f"{folder} does not exist: install torch into a folder with --no-deps, and name it"
        )
    missing = missing_symbols(sorted(folder.glob("*.so")))
    for library, versions in missing.items():
        build(library, versions, folder)
    print(f"{len(missing)} libraries in {folder}")  # noqa: T201 - a command


if __name__ == "__main__":
    main()
