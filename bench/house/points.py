"""The points by which the code base is compared with model code bases, each with its bar.

The bars are those of the anchors (kopf, lightkube, httpx, svcs, structlog, kueue, karpenter), measured
in the same way; where ours is stricter, it says so. Each point is a pure function of the sources.
"""

import ast
import re
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.house import names
from bench.house.tree import Module, length

MAX_LINES, MEDIAN_LINES = 400, 120
MAX_COMPLEXITY = 10
MAX_FUNCTION, P99_FUNCTION, MEDIAN_FUNCTION = 60, 50, 8
MIN_PURE_PERCENT = 50
MAX_ANY_PERCENT = 36
MIN_COVERAGE = 95
MIN_PROPERTY_FILES = 7
_CLOCKS = re.compile(r"\b(time\.(time|monotonic)|datetime\.now|random\.\w+|Random\(\))")
_MOCKS = re.compile(r"^\s*(from|import)\s+(unittest\b.*\bmock|mock)\b", re.MULTILINE)
_HYPOTHESIS = re.compile(r"^\s*(from|import)\s+hypothesis\b", re.MULTILINE)
_SOCKETS = re.compile(r"\bsocket\.(socket|create_connection|create_server)\(")


@dataclass(frozen=True)
class Project:
    """All that the points look at.

    Attributes:
        production: Modules of the rooms.
        tests: Modules of tests/.
        config: pyproject.toml, parsed.
        documents: Text of the documents by path: README.md, docs/**/*.md.
        complex_functions: How many functions ruff finds over its limit of complexity, waivers ignored.
        class_reasons: Why a class name stands in several files, by name; see docs/glossary.md.
    """

    production: list[Module]
    tests: list[Module]
    config: Mapping[str, Any]
    documents: Mapping[str, str]
    complex_functions: int
    class_reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    """One measured property of the code base.

    Attributes:
        title: What was measured.
        measured: The figures of this tree.
        bar: What they are held to.
        met: Whether they reach the bar.
        faults: Where they do not, one place in each.
    """

    title: str
    measured: str
    bar: str
    met: bool
    faults: tuple[str, ...] = ()


def module_size(project: Project) -> Point:
    """Lines of production modules."""
    sizes = [module.lines for module in project.production]
    long = [f"{m.path}: {m.lines} lines" for m in project.production if m.lines > MAX_LINES]
    median = statistics.median(sizes)
    return Point(
        "Module size",
        f"median {median:.0f}, max {max(sizes)} lines",
        f"{MEDIAN_LINES} / {MAX_LINES}",
        median <= MEDIAN_LINES and not long,
        tuple(long),
    )


def function_size(project: Project) -> Point:
    """Lines of production functions, signature and docstring included."""
    sizes = sorted(length(one) for module in project.production for one in module.functions)
    long = [
        f"{module.path}:{function.lineno} {function.name}: {length(function)} lines"
        for module in project.production
        for function in module.functions
        if length(function) > MAX_FUNCTION
    ]
    median, p99 = statistics.median(sizes), sizes[int(len(sizes) * 0.99)]
    return Point(
        "Function size",
        f"median {median:.0f}, p99 {p99}, max {sizes[-1]} lines",
        f"{MEDIAN_FUNCTION} / {P99_FUNCTION} / {MAX_FUNCTION}",
        median <= MEDIAN_FUNCTION and p99 <= P99_FUNCTION and not long,
        tuple(long),
    )


def complexity(project: Project) -> Point:
    """Functions over ruff's limit of complexity, with waivers or without."""
    limit = project.config["tool"]["ruff"]["lint"]["mccabe"]["max-complexity"]
    count = project.complex_functions
    return Point(
        "Complexity",
        f"{count} functions over {limit}",
        f"0 over {MAX_COMPLEXITY}",
        count == 0 and limit <= MAX_COMPLEXITY,
    )


def types(project: Project) -> Point:
    """Annotated functions, and how many signatures say `Any` or `Json`."""
    missing, vague, total = [], 0, 0
    for module in project.production:
        for function in module.functions:
            total += 1
            if not _is_annotated(function):
                missing.append(f"{module.path}:{function.lineno} {function.name}")
            vague += bool(re.search(r"\b(Any|Json)\b", _signature(function)))
    mypy = project.config["tool"]["mypy"]
    strict = mypy.get("strict", False) and "tests" in mypy["files"]
    return Point(
        "Types",
        f"{100 * (total - len(missing)) / total:.1f} % annotated, "
        f"{100 * vague / total:.0f} % of signatures with Any or Json",
        f"100 %, strict in tests too; at most {MAX_ANY_PERCENT} % Any",
        not missing and strict and 100 * vague <= MAX_ANY_PERCENT * total,
        tuple(missing),
    )


def layers(project: Project) -> Point:
    """Import contracts, and what they let through."""
    linter = project.config["tool"]["importlinter"]
    contracts = linter["contracts"]
    waived = [
        f"{contract['name']}: {key}"
        for contract in contracts
        for key in ("ignore_imports", "allow_indirect_imports")
        if contract.get(key)
    ]
    rooms = {module.name.split(".")[0] for module in project.production}
    outside = sorted(rooms - set(linter["root_packages"]))
    return Point(
        "Layers",
        f"{len(contracts)} contracts, {len(waived)} with waivers, {len(outside)} rooms under none",
        "no waiver, all rooms",
        not waived and not outside,
        (*waived, *outside),
    )


def pure_share(project: Project) -> Point:
    """Lines of modules that a contract keeps free of I/O and clocks."""
    under_contract = _pure_modules(project.config)
    pure = [m for m in project.production if _is_within(m.name, under_contract)]
    total = sum(module.lines for module in project.production)
    percent = 100 * sum(module.lines for module in pure) / total
    claims = [
        module.path
        for module in project.production
        if (ast.get_docstring(module.tree) or "").strip().endswith("Pure.")
        and not _is_within(module.name, under_contract)
    ]
    return Point(
        "Pure share",
        f"{percent:.0f} % of {total} lines",
        f">= {MIN_PURE_PERCENT} %, and each module that says so",
        percent >= MIN_PURE_PERCENT and not claims,
        tuple(claims),
    )


def seams(project: Project) -> Point:
    """Test files that replace parts of the code under test."""
    mocks = [m.path for m in project.tests if _MOCKS.search(m.text)]
    patching = [m.path for m in project.tests if "monkeypatch.setattr" in m.text]
    sockets = [m.path for m in project.production if _SOCKETS.search(m.text)]
    percent = 100 * len(patching) / len(project.tests)
    return Point(
        "Seams",
        f"{len(mocks)} test files with mocks, {percent:.0f} % patch a constant; "
        f"{len(sockets)} modules open sockets",
        "0 mocks",
        not mocks,
        tuple(mocks),
    )


def determinism(project: Project) -> Point:
    """Clocks and random numbers in the core."""
    core = [m for m in project.production if m.room in {"policy", "simulator"}]
    calls = [m.path for m in core if _CLOCKS.search(m.text)]
    return Point(
        "Determinism",
        f"{len(calls)} clocks or random numbers in the core",
        "0",
        not calls,
        tuple(calls),
    )


def errors(project: Project) -> Point:
    """Trees of exceptions that are drawn where they are defined."""
    hidden = [
        f"{module.path}: {definition.name}"
        for module in project.production
        if module.path.endswith("/errors.py")
        for definition in module.classes
        if definition.name not in (ast.get_docstring(module.tree) or "")
    ]
    files = sum(module.path.endswith("/errors.py") for module in project.production)
    return Point(
        "Errors",
        f"{files} trees, {len(hidden)} classes not drawn",
        "all drawn",
        not hidden,
        tuple(hidden),
    )


def docstrings(project: Project) -> Point:
    """Modules, public classes and public functions with a docstring, or with that of a base class."""
    bare = [
        f"{module.path}:{getattr(node, 'lineno', 1)}"
        for module in project.production
        for node in (module.tree, *_public(module.tree))
        if ast.get_docstring(node) is None and not _overrides(node)
    ]
    return Point("Docstrings", f"{len(bare)} public things without", "0", not bare, tuple(bare))


def _overrides(node: ast.AST) -> bool:
    """Whether it is a method whose description is that of its base class."""
    decorators = getattr(node, "decorator_list", [])
    return any(isinstance(name, ast.Name) and name.id == "override" for name in decorators)


def tests(project: Project) -> Point:
    """Size of the tests beside the code, and the longest file."""
    ours = sum(module.lines for module in project.tests)
    theirs = sum(module.lines for module in project.production)
    long = [f"{m.path}: {m.lines} lines" for m in project.tests if m.lines > MAX_LINES]
    return Point(
        "Tests",
        f"{ours / theirs:.2f} lines per line, longest file {max(m.lines for m in project.tests)}",
        f">= 1, file <= {MAX_LINES}",
        ours >= theirs and not long,
        tuple(long),
    )


def properties(project: Project) -> Point:
    """Test files with invariants."""
    files = [m for m in project.tests if _HYPOTHESIS.search(m.text)]
    return Point(
        "Properties",
        f"{len(files)} files under Hypothesis",
        f">= {MIN_PROPERTY_FILES}",
        len(files) >= MIN_PROPERTY_FILES,
    )


def coverage(project: Project) -> Point:
    """What `make cov` demands."""
    run, report = (project.config["tool"]["coverage"][part] for part in ("run", "report"))
    least = report["fail_under"]
    return Point(
        "Coverage",
        f"branches {'counted' if run['branch'] else 'not counted'}, at least {least} %, policy 100 %",
        f"branches, >= {MIN_COVERAGE} %",
        bool(run["branch"]) and least >= MIN_COVERAGE,
    )


def decisions(project: Project) -> Point:
    """Decision notes, and whether code or documents lead to each."""
    notes = [path for path in project.documents if re.search(r"decisions/\d{4}-(?!template)", path)]
    texts = [m.text for m in project.production]
    texts += [text for path, text in project.documents.items() if "/decisions/" not in path]
    lost = [note for note in notes if not any(_names_note(text, note) for text in texts)]
    return Point(
        "Decisions",
        f"{len(notes)} notes, {len(lost)} that nothing leads to",
        "each led to",
        bool(notes) and not lost,
        tuple(lost),
    )


def first_hour(project: Project) -> Point:
    """What the README tells somebody who has just cloned the project."""
    readme = project.documents["README.md"]
    missing = [
        word for word in ("make demo", "make test", "docs/architecture.md") if word not in readme
    ]
    return Point(
        "First hour",
        f"README names {3 - len(missing)} of 3: demo, tests, what to read",
        "3",
        not missing,
        tuple(missing),
    )


def naming(project: Project) -> Point:
    """Placeholder names by room, and class names that mean several things."""
    rooms = names.by_room(project.production)
    over = [
        f"{room}: {n.percent:.1f} %" for room, n in rooms.items() if n.percent > names.MAX_PERCENT
    ]
    twice = names.repeated_classes(project.production, project.class_reasons)
    worst = max(rooms.values(), key=lambda room: room.percent)
    return Point(
        "Names",
        f"at most {worst.percent:.1f} % placeholders in a room, {len(twice)} class names in several files",
        f"<= {names.MAX_PERCENT} %, 0 without a reason",
        not over and not twice,
        (*over, *(f"{name}: {', '.join(files)}" for name, files in twice.items())),
    )


POINTS: tuple[Callable[[Project], Point], ...] = (
    module_size,
    function_size,
    complexity,
    types,
    layers,
    pure_share,
    seams,
    determinism,
    errors,
    docstrings,
    tests,
    properties,
    coverage,
    naming,
    decisions,
    first_hour,
)


def _is_annotated(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    spec = function.args
    parameters = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    if parameters and parameters[0].arg in {"self", "cls"}:
        parameters = parameters[1:]
    parameters += [extra for extra in (spec.vararg, spec.kwarg) if extra is not None]
    return function.returns is not None and all(one.annotation is not None for one in parameters)


def _signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    returns = ast.unparse(function.returns) if function.returns is not None else ""
    return f"{ast.unparse(function.args)} -> {returns}"


def _pure_modules(config: Mapping[str, Any]) -> set[str]:
    """Modules of the contracts that forbid network, files and clocks to them."""
    return {
        module
        for contract in config["tool"]["importlinter"]["contracts"]
        if contract["type"] == "forbidden"
        and {"socket", "os", "time"} <= set(contract["forbidden_modules"])
        for module in contract["source_modules"]
    }


def _is_within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _public(node: ast.AST) -> Iterable[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if child.name.startswith("_"):
                continue
            if not any("overload" in ast.unparse(line) for line in child.decorator_list):
                yield child
            if isinstance(child, ast.ClassDef):
                yield from _public(child)


def _names_note(text: str, note: str) -> bool:
    number = note.rpartition("/")[2].split("-")[0]
    return note in text or f"decision {number}" in text or f"decisions/{number}" in text
