"""A few inputs of every fuzz target, what fuzzing has shown before, and the frame itself."""

from random import Random

import pytest

from kube.request import JOBS
from policy.names import ANNOTATION_BOOKS
from tests.fuzz import __main__ as command
from tests.fuzz import parts, run, worlds
from tests.fuzz.targets import TARGETS
from tests.reconciler import objects
from tests.reconciler.world import Process

INPUTS = 4
ACCOUNTING = (
    '{"next":1,"failuresInRow":1,"lastFailure":1e300}',
    '{"next":1,"failed":100000000000000000000}',
    '{"next":100000,"open":"0-99999"}',
)
"""Each of these stopped planning for all jobs, or held it for seconds."""


@pytest.mark.parametrize("name", TARGETS)
def test_a_few_inputs_of_each_target(name: str) -> None:
    """No finding; `make fuzz` runs many more."""
    findings = run.run(name, TARGETS[name], 1, range(INPUTS))

    assert [finding.replay for finding in findings] == []


@pytest.mark.parametrize("managed", [True, False])
def test_accounting_that_a_tenant_has_written_costs_others_nothing(managed: bool) -> None:
    """Three annotations that did; another tenant's jobs start, grow and give room to services."""
    world = worlds.new_world()
    for number, text in enumerate(ACCOUNTING):
        body = objects.job(
            f"bad-{number}", 1, 2, managed=managed, annotations={ANNOTATION_BOOKS: text}
        )
        body["metadata"]["namespace"] = "evil"
        worlds.put(world, JOBS, body)
    process = Process(world, writers=0)
    worlds.run_and_check(world, process)


def _fail_at_three(random: Random) -> None:
    if random.random() == Random("t 5 3").random():  # noqa: S311 - the number of input 3
        raise ValueError("three")


def test_a_finding_says_how_to_repeat_it() -> None:
    """The same seed and number make the same input, alone or among others."""
    (finding,) = run.run("t", _fail_at_three, 5, range(6))
    (again,) = run.run("t", _fail_at_three, 5, range(3, 4))

    assert finding.replay == "make fuzz TARGET=t SEED=5 FIRST=3 COUNT=1"
    assert again == finding


def test_an_input_that_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are still run."""
    monkeypatch.setattr(run, "INPUT_S", 0.01)

    def hang(random: Random) -> None:
        while random.random() < 2.0:
            pass

    findings = list(run.run("hang", hang, 1, range(2)))

    assert ["HangError" in finding.error for finding in findings] == [True, True]


def test_the_command_runs_the_targets_that_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints how many inputs there were, and ends with 1 where there are findings."""
    monkeypatch.setattr(parts, "limit_memory", lambda: None)
    for module in (command, parts):
        monkeypatch.setattr(module, "TARGETS", {"t": _fail_at_three, "good": lambda _: None})
    good = command.main(["--target", "good", "--seed", "5", "--count", "3"])
    printed = capsys.readouterr().out
    bad = command.main(["--seed", "5", "--count", "6"])

    assert (good, bad) == (0, 1)
    assert printed.startswith("good: 3 inputs, seed 5, ")
    assert "make fuzz TARGET=t SEED=5 FIRST=3 COUNT=1" in capsys.readouterr().out


@pytest.mark.soak
def test_inputs_are_the_same_in_several_processes(capsys: pytest.CaptureFixture[str]) -> None:
    """Three parts of a target run on two processes; each input is counted once."""
    status = command.main(
        ["--target", "quantities", "--seed", "5", "--count", "600", "--jobs", "2"]
    )

    assert status == 0
    assert capsys.readouterr().out.startswith("quantities: 600 inputs, seed 5, ")


@pytest.mark.parametrize(
    "words", [["--count", "0"], ["--first", "-1"], ["--target", "none"], ["--jobs", "0"]]
)
def test_a_run_of_nothing_is_refused(words: list[str]) -> None:
    """Bad usage exits with 2; it must not look like a run without findings."""
    with pytest.raises(SystemExit) as stop:
        command.main(words)
    assert stop.value.code == 2
