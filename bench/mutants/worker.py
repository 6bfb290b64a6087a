"""`python -m bench.mutants.worker STEP`: runs mutmut in a staged tree.

Mutmut reads its settings from the working folder and takes over the process, so each room has its
own process. It imports no mutated module, because mutmut sets their path later.

Steps:
    list: writes candidates.json, the numbers of the mutants of each file.
    run WORKERS: reads sample.json (such numbers), generates only these mutants, writes their
        descriptions to mutants.json, runs mutmut, and tries survivors and time-outs again. Mutants
        with a result of an interrupted run keep it.
"""

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import libcst as cst
from mutmut.__main__ import cli
from mutmut.configuration import config
from mutmut.mutation import file_mutation
from mutmut.mutation.file_mutation import Mutation, create_mutations
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import (
    get_mutant_name,
    mangled_name_from_mutant_name,
    orig_function_and_class_names_from_key,
)
from mutmut.workers.isolation import ForkServerRunner

from bench.mutants import files, patch, verdicts
from bench.mutants.verdicts import Verdict

_STATS = files.OUTPUT / "mutmut-stats.json"
_START_S = 90.0
"""For interpreter, imports and collection, on a machine with other load."""
_PATIENCE = 10.0
"""The allowed multiple of the tests' usual duration."""


def main() -> None:
    """Runs the step that the command line names."""
    if sys.argv[1] == "list":
        paths = walk_mutatable_files()
        files.write(files.CANDIDATES, {str(path): _numbers(path) for path in paths})
        return
    sample: dict[str, list[int]] = files.read(files.SAMPLE)
    if not files.MUTANTS.exists():  # else the run was interrupted after this
        files.write(
            files.MUTANTS,
            [about for path, numbers in sample.items() for about in _described(path, numbers)],
        )
    if not files.exit_codes(Path(), sample):
        shutil.rmtree(files.OUTPUT, ignore_errors=True)  # an interrupt may have left half of a file
    file_mutation.create_mutations = _only(sample)
    ForkServerRunner.run_clean_tests = _passed  # type: ignore[method-assign]
    cli(["run", "--max-children", sys.argv[2]], standalone_mode=False)
    _again(sample, int(sys.argv[2]))


def _passed(self: ForkServerRunner, tests: Iterable[str]) -> int:  # noqa: ARG001 - mutmut's signature
    """The exit code of all tests without a mutant: they have just passed, when they were measured."""
    return 0


def _numbers(path: Path) -> list[int]:
    """The mutations of a file that mutmut can apply: those inside functions."""
    _, mutations, _, _ = create_mutations(str(path), path.read_text(encoding="utf-8"))
    return [
        number
        for number, mutation in enumerate(mutations)
        if isinstance(mutation.contained_by_top_level_function, cst.FunctionDef)
    ]


def _only(sample: dict[str, list[int]]) -> Any:
    """Returns a generator of the sampled mutations: generating all would take minutes."""

    def sampled(filename: str, code: str, *lines: Any) -> tuple[Any, list[Mutation], Any, Any]:
        module, mutations, classes, functions = create_mutations(filename, code, *lines)
        chosen = [mutations[number] for number in sample.get(filename, [])]
        return module, chosen, classes, functions

    return sampled


def _described(path: str, numbers: Iterable[int]) -> list[dict[str, Any]]:
    """Describes the sampled mutants of a file, with mutmut's names and in its order."""
    code = Path(path).read_text(encoding="utf-8")
    module, mutations, _, _ = create_mutations(path, code)
    chosen = [mutations[number] for number in numbers]
    names = file_mutation.combine_mutations_to_source(module, chosen).mutant_names
    described = []
    for name, mutation in zip(names, chosen, strict=True):
        function, class_name = orig_function_and_class_names_from_key(name)
        tree = file_mutation.deep_replace(module, mutation.original_node, mutation.mutated_node)
        changed = patch.patch(path, code, cst.ensure_type(tree, cst.Module).code)
        described.append(
            {
                "name": get_mutant_name(Path(path), name),
                "file": path,
                "function": f"{class_name}.{function}" if class_name else function,
                **dataclasses.asdict(changed),
            }
        )
    return described


def _again(sample: Iterable[str], workers: int) -> None:
    """Tries survivors again, each in its own process with all tests of a file, and time-outs.

    Mutmut assigns the calls of a module fixture to a single test, and forks after imports, so it
    cannot mutate code that imports call. It uses few examples. A mutant that survives this is not
    detected by any of the room's tests that start no process.
    """
    codes = files.exit_codes(Path(), sample)
    done: dict[str, int] = files.read(files.SECOND_TRY) if files.SECOND_TRY.exists() else {}
    files.write(files.SECOND_TRY, done)  # a room may have none
    names = [
        name for name, code in codes.items() if verdicts.needs_second_try(code) and name not in done
    ]
    stats = files.read(_STATS)
    with ThreadPoolExecutor(workers) as pool:
        second_codes = pool.map(lambda name: _alone(name, codes[name], stats), names)
        for name, code in zip(names, second_codes, strict=True):
            done[name] = code
            files.write(files.SECOND_TRY, done)


def _alone(name: str, first_code: int, stats: dict[str, Any]) -> int:
    """Tests one mutant in its own interpreter; returns the exit code of pytest or of a time-out.

    After a time-out only the tests that reach it run: the question is whether they end.
    """
    seconds: dict[str, float] = stats["duration_by_test"]
    reached: list[str] = stats["tests_by_mangled_function_name"][
        mangled_name_from_mutant_name(name)
    ]
    names = sorted({test.partition("::")[0] for test in reached})
    if verdicts.verdict(first_code) is Verdict.TIMED_OUT:
        names = sorted(reached)
    elif reached == [next(iter(seconds))]:  # calls during imports are assigned to the first test
        names = config().pytest_add_cli_args_test_selection
    usual_s = sum(
        s for test, s in seconds.items() if test in names or test.partition("::")[0] in names
    )
    options = [
        option for option in config().pytest_add_cli_args if not option.startswith("--hypothesis")
    ]
    command = (sys.executable, "-m", "pytest", "-x", "-q", *options, *names)
    try:
        return subprocess.run(
            command,
            check=False,
            cwd=files.OUTPUT,
            env=os.environ | {"MUTANT_UNDER_TEST": name},
            timeout=_START_S + _PATIENCE * (usual_s or sum(seconds.values())),
            stdout=subprocess.DEVNULL,
        ).returncode
    except subprocess.TimeoutExpired:
        return verdicts.TIMED_OUT


if __name__ == "__main__":
    main()
