"""The rooms: which code is mutated, and which tests must detect the mutants."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGES = (
    "admin",
    "cli",
    "edl",
    "extender",
    "kube",
    "master",
    "page",
    "policy",
    "pserver",
    "reconciler",
    "runtime",
    "simulator",
    "webhook",
)
"""Packages at the root of a staged tree, including the SDK's, which is in sdk/src."""
_PURE_MASTER = "The master's ledger, rendezvous and protocol are pure"
"""The contract of import-linter that lists the master's pure files."""
_MASTER_AT_WORK = tuple(
    f"master/{name}.py"
    for name in (
        "durable_ledger",
        "fence",
        "journal",
        "service",
        "snapshots",
        "threads",
        "waiting_calls",
    )
)
"""Files that the contract cannot name: they wait, write files or hold locks."""


@dataclass(frozen=True, slots=True)
class Room:
    """A part of the tree with the tests of its mutants."""

    name: str
    sources: tuple[str, ...]
    """Glob patterns of files in the staged tree."""
    tests: tuple[str, ...]
    """Files and folders passed to pytest."""
    excluded_tests: tuple[str, ...] = ()
    """Files and tests among them that start processes: they are slow, and mutants may not end."""
    tried_by_default: bool = True
    """Whether its mutants are in the sample of a run that names no rooms."""


def rooms(root: Path) -> dict[str, Room]:
    """All rooms, the slowest first, because rooms run in parallel.

    Raises:
        LookupError: pyproject.toml has no contract about the master's pure files.
    """
    pyproject = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    listed = (
        Room("sdk", _SDK, _SDK_TESTS, _SDK_PROCESSES),
        Room("policy", ("policy/**/*.py",), ("tests/policy",)),
        Room(
            "master",
            (*_pure_master_files(pyproject), *_MASTER_AT_WORK, "runtime/call_checks.py"),
            ("tests/master",),
            (*_processes("master"), _MASTER_KILL_TEST),
        ),
        Room("reconciler", ("reconciler/**/*.py",), ("tests/reconciler", _METRICS_PAGE_TEST)),
        Room(
            "pserver",
            ("pserver/store.py", "pserver/service.py"),
            ("tests/pserver",),
            _processes("pserver"),
        ),
        Room(
            "webhook",
            ("webhook/*.py",),
            ("tests/webhook", _METRICS_PAGE_TEST),
            _processes("webhook"),
        ),
        Room("extender", ("extender/*.py",), ("tests/extender", _METRICS_PAGE_TEST)),
        Room("admin", ("admin/*.py",), ("tests/admin",), tried_by_default=False),
        Room("cli", ("cli/*.py",), ("tests/cli",), (_CLI_PIPE_TEST,), tried_by_default=False),
        Room("kube", ("kube/lease.py", "kube/cache.py", "kube/reflector.py"), ("tests/kube",)),
    )
    return {room.name: room for room in listed}


_SDK = (
    "edl/data/batches.py",
    "edl/master/leases.py",
    "edl/data/lease_sink.py",
    "edl/data/work_fetcher.py",
    "edl/master/heartbeat.py",
    "edl/master/session.py",
    "edl/sync/*.py",
)
_SDK_TESTS = (
    "tests/sdk/sync",
    "tests/sdk/data/test_batches.py",
    "tests/sdk/data/test_batches_and_master.py",
    "tests/sdk/master/test_leases.py",
    "tests/sdk/data/test_checkpoints.py",
    "tests/sdk/data/test_work_fetcher.py",
    "tests/sdk/data/test_progress.py",
    "tests/sdk/data/test_real_master.py",
    "tests/sdk/master/test_rendezvous.py",
    "tests/sdk/master/test_rendezvous_ends.py",
    "tests/sdk/master/test_session.py",
    "tests/sdk/master/test_settings.py",
)


_SDK_PROCESSES = (
    "tests/sdk/sync/test_changes.py",
    "tests/sdk/sync/test_curves.py",
    "tests/sdk/sync/test_exactly_once.py::test_after_the_loss_of_all_the_model_is_that_of_the_books",
    "tests/sdk/sync/test_frozen_storm.py",
    "tests/sdk/sync/test_resuming.py",
)
_METRICS_PAGE_TEST = "tests/bench/test_metrics_page.py"
"""Names and descriptions of metrics are what their page says."""
_CLI_PIPE_TEST = "tests/cli/test_frame.py::test_a_closed_pipe_ends_quietly"
_MASTER_KILL_TEST = (
    "tests/master/test_rendezvous_service.py::test_killed_in_a_round_a_master_goes_on_with_it"
)


def _processes(room: str) -> tuple[str, ...]:
    return (f"tests/{room}/test_process.py",)


def _pure_master_files(pyproject: dict[str, Any]) -> list[str]:
    for contract in pyproject["tool"]["importlinter"]["contracts"]:
        if contract["name"] == _PURE_MASTER:
            return [f"{module.replace('.', '/')}.py" for module in contract["source_modules"]]
    raise LookupError(f"pyproject.toml has no contract named {_PURE_MASTER!r}")
