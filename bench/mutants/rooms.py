"""Which code is mutated, and which tests have to notice."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGES = (
    "edl",
    "extender",
    "kube",
    "master",
    "policy",
    "pserver",
    "reconciler",
    "runtime",
    "simulator",
    "webhook",
)
"""What lies at the root of a staged tree; the SDK's package too, whose home is sdk/src."""
_BOOKS = "The master's books are pure"
"""The contract of import-linter that lists the master's pure files."""


@dataclass(frozen=True, slots=True)
class Room:
    """One part of the tree with the tests that it is judged by."""

    name: str
    sources: tuple[str, ...]
    """Patterns of files in the staged tree."""
    tests: tuple[str, ...]
    """Files and folders given to pytest."""
    excluded_tests: tuple[str, ...] = ()
    """Of these, files and tests that start processes: slow, and mutants in processes live long."""


def rooms(root: Path) -> dict[str, Room]:
    """All rooms, those that take longest first: rooms are tried side by side.

    Raises:
        LookupError: pyproject.toml has no contract about the master's books.
    """
    pyproject = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    served = ("master/fence.py", "master/journal.py", "master/service.py")
    listed = (
        Room("sdk", _SDK, _SDK_TESTS, _SDK_PROCESSES),
        Room("policy", ("policy/**/*.py",), ("tests/policy",)),
        Room(
            "master",
            (*_books(pyproject), *served),
            ("tests/master",),
            (*_processes("master"), _MASTER_KILL_TEST),
        ),
        Room("reconciler", ("reconciler/*.py",), ("tests/reconciler",), _processes("reconciler")),
        Room(
            "pserver",
            ("pserver/store.py", "pserver/service.py"),
            ("tests/pserver",),
            _processes("pserver"),
        ),
        Room("webhook", ("webhook/*.py",), ("tests/webhook",), _processes("webhook")),
        Room("extender", ("extender/*.py",), ("tests/extender",), _processes("extender")),
        Room("kube", ("kube/lease.py", "kube/cache.py", "kube/reflector.py"), ("tests/kube",)),
    )
    return {room.name: room for room in listed}


_SDK = (
    "edl/batches.py",
    "edl/book.py",
    "edl/courier.py",
    "edl/heart.py",
    "edl/session.py",
    "edl/sync/*.py",
)
_SDK_TESTS = (
    "tests/sdk/sync",
    "tests/sdk/test_batches.py",
    "tests/sdk/test_batches_and_master.py",
    "tests/sdk/test_book.py",
    "tests/sdk/test_checkpoints.py",
    "tests/sdk/test_courier.py",
    "tests/sdk/test_progress.py",
    "tests/sdk/test_real_master.py",
    "tests/sdk/test_rendezvous.py",
    "tests/sdk/test_session.py",
    "tests/sdk/test_settings.py",
)


_SDK_PROCESSES = (
    "tests/sdk/sync/test_changes.py",
    "tests/sdk/sync/test_curves.py",
    "tests/sdk/sync/test_frozen_storm.py",
    "tests/sdk/sync/test_resuming.py",
)
_MASTER_KILL_TEST = (
    "tests/master/test_rendezvous_service.py::test_killed_in_a_round_a_master_goes_on_with_it"
)


def _processes(room: str) -> tuple[str, ...]:
    return (f"tests/{room}/test_process.py",)


def _books(pyproject: dict[str, Any]) -> list[str]:
    for contract in pyproject["tool"]["importlinter"]["contracts"]:
        if contract["name"] == _BOOKS:
            return [f"{module.replace('.', '/')}.py" for module in contract["source_modules"]]
    raise LookupError(f"pyproject.toml has no contract named {_BOOKS!r}")
