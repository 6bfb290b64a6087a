"""What all commands share: help, formats, errors in one line, exit codes, narrow terminals, closed pipes."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Context

import cli.__main__ as cli_main
from cli import terminal
from cli.__main__ import COMMANDS
from cli.__main__ import edl as group
from cli.errors import ExitCode
from kube import request
from policy.records import Record
from tests.cli.cluster import NOW_S, Cli, check_snapshot
from tests.support.kubeconfigs import write_kubeconfig


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_as_recorded(edl: Cli, command: str) -> None:
    """Of the program and of each command; it needs no cluster."""
    run = edl(*([command] if command else []), "--help", columns=80)

    assert (run.code, run.err) == (0, "")
    check_snapshot(f"help-{command or 'edl'}", run.out)


def test_no_command_shows_the_help(edl: Cli) -> None:
    """And is no error."""
    assert edl().out == edl("--help").out
    assert edl().code == 0


def test_every_command_is_in_the_help() -> None:
    """With a sentence about it."""
    context = Context(group)
    texts = [group.get_command(context, name) for name in group.list_commands(context)]

    assert all(command is not None and command.get_short_help_str() for command in texts)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["job"], "edl: unknown command 'job' (did you mean jobs?); --help lists all commands\n"),
        (["xyz"], "edl: unknown command 'xyz'; --help lists all commands\n"),
        (
            ["jobs", "--namespce", "a"],
            "edl: unknown flag --namespce (did you mean --namespace?); --help lists all flags\n",
        ),
        (["describe"], "edl: Missing argument 'JOB' (see `edl describe --help`)\n"),
        (["jobs", "a"], "edl: Got unexpected extra argument (a) (see `edl jobs --help`)\n"),
    ],
)
def test_wrong_arguments_are_one_line(edl: Cli, words: list[str], text: str) -> None:
    """With the nearest name that exists; nothing is sent."""
    run = edl(*words)

    assert (run.code, run.out, run.err) == (ExitCode.USAGE, "", text)


def test_an_unknown_format_is_one_line(edl: Cli) -> None:
    """It names the formats."""
    run = edl("jobs", "-o", "xml")

    assert run.code == ExitCode.USAGE
    assert run.err.count("\n") == 1
    assert "table" in run.err


def test_formats_have_the_same_values(edl: Cli) -> None:
    """JSON and YAML are for programs."""
    edl.cluster.add_job("digits", active=2)
    edl.cluster.add_records("ml", Record(NOW_S, "job ml/digits", "NoRoom", job="ml/digits"))
    rows = json.loads(edl("jobs", "-o", "json").out)

    assert yaml.safe_load(edl("jobs", "-o", "yaml").out) == rows
    assert [(row["name"], row["code"], row["trainers"]) for row in rows] == [
        ("digits", "NoRoom", 2)
    ]


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_texts_of_strangers_do_nothing_to_a_terminal(
    edl: Cli, form: str, read: Callable[[str], Any]
) -> None:
    """Escapes, text that runs from right to left and such are escaped, and read back as they were."""
    text = "a\x1b[31m\x07\x7f\x85\x9b2J\u200b\u202eb\u2066\u2028\ufeff\U000e0001 \u5ef6"
    edl.cluster.add_job("digits", active=2)
    record = Record(NOW_S, "job ml/digits", "NoRoom", text, job="ml/digits")
    edl.cluster.add_records("ml", record)
    out = edl("jobs", "-o", form).out

    assert {char for char in out if not " " <= char <= "~"} == {"\n"}
    assert read(out)[0]["text"] == text


def test_jobs_are_a_table(edl: Cli) -> None:
    """In a wide terminal and one of 60 columns, of one namespace and of all."""
    edl.cluster.add_job("digits", active=2)
    edl.cluster.add_job("a-job-with-a-rather-long-name", active=12, high=64)
    edl.cluster.add_job("other", namespace="vision", suspend=True)
    edl.cluster.add_records("ml", Record(NOW_S, "job ml/digits", "WaitingForRoom", job="ml/digits"))

    check_snapshot("jobs", edl("jobs").out)
    check_snapshot("jobs-all-60", edl("jobs", "-A", columns=60).out)
    assert max(len(line) for line in edl("jobs", "-A", columns=60).out.splitlines()) <= 60


def test_no_jobs_is_a_sentence(edl: Cli) -> None:
    """And an empty list for programs."""
    assert edl("jobs").out == "There are no elastic jobs in the namespace ml.\n"
    assert edl("jobs", "-A").out == "There are no elastic jobs in this cluster.\n"
    assert json.loads(edl("jobs", "-o", "json").out) == []


@pytest.mark.parametrize("flags", [["-n", "secret"], ["-A"]])
def test_a_missing_right_is_one_line(edl: Cli, flags: list[str]) -> None:
    """It names the right; nothing of the namespace is shown."""
    edl.cluster.forbidden = {("jobs", "secret"), ("jobs", None)}
    edl.cluster.add_job("hidden", namespace="secret")
    run = edl("jobs", *flags)

    assert (run.code, run.out) == (ExitCode.FORBIDDEN, "")
    assert run.err.count("\n") == 1
    assert "you may not list jobs.batch" in run.err
    assert "hidden" not in run.err


@pytest.mark.parametrize(
    "words",
    [
        ["jobs"],
        ["why", "digits"],
        ["describe", "digits"],
        ["reclaims"],
        ["top"],
        ["when", "digits"],
        ["plan"],
        ["snapshot", "now.json"],
        ["policy", "show"],
        ["suspend", "digits"],
        ["scale", "digits", "--max", "3"],
    ],
)
def test_a_cluster_without_edl_is_one_line(
    edl: Cli, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its own exit code; no plan is shown that nobody makes, and nothing is written that nobody acts on."""
    monkeypatch.chdir(tmp_path)
    edl.cluster.has_edl = False
    edl.cluster.add_job("digits")
    edl.cluster.writes.clear()
    run = edl(*words)

    assert (run.code, run.out) == (ExitCode.NO_EDL, "")
    assert run.err.startswith("edl: EDL is not installed in this cluster")
    assert run.err.count("\n") == 1
    assert edl.cluster.writes == []
    assert list(tmp_path.iterdir()) == []


def test_who_may_not_ask_for_kinds_gets_answers_all_the_same(edl: Cli) -> None:
    """Some clusters show their kinds to nobody."""
    edl.cluster.forbidden_kinds = True
    assert edl("policy", "show").out == "The default policy is in force.\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *[(-5, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (200, "3m20s"), (1020, "17m")],
        *[(3600, "1h"), (18_180, "5h3m"), (40_000, "11h"), (90_000, "1d1h"), (2e6, "23d")],
    ],
)
def test_ages_are_written_as_kubectl_does(seconds: float, text: str) -> None:
    """Small ones with two units; of the future 0."""
    assert terminal.age(seconds) == text


def test_a_closed_pipe_ends_quietly() -> None:
    """As `edl ... | head` closes it: no trace, the exit code of SIGPIPE."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    run = subprocess.run(
        [sys.executable, "-m", "cli", "--help"],
        stdout=write_end,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write_end)

    assert (run.returncode, run.stderr) == (ExitCode.CLOSED_PIPE, b"")


def test_a_table_into_a_closed_pipe_ends_quietly_too(
    edl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the code of a closed pipe: the library that prints tables would end with 1."""
    edl.cluster.add_job("digits", active=2)

    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(cli_main, "_discard_output", lambda: None)
    with monkeypatch.context() as streams:
        streams.setattr(sys, "stdout", Closed())
        code = cli_main.main(["jobs"])
    assert code == ExitCode.CLOSED_PIPE


def test_a_cluster_that_does_not_answer_is_named_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, as `python -m admin` has it."""
    path = write_kubeconfig(tmp_path / "k", "http://127.0.0.1:9")
    code = cli_main.main(["jobs", "--kubeconfig", str(path)])

    assert code == ExitCode.FAILED
    err = capsys.readouterr().err
    assert "no answer: " in err
    assert err.endswith("; use --kubeconfig or --context to select another cluster\n")
    assert err.count("\n") == 1


def test_without_output_a_command_runs_all_the_same(
    edl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`edl jobs >&-`: Python has no stdout then."""
    edl.cluster.add_job("digits", active=2)
    with monkeypatch.context() as streams:
        streams.setattr(sys, "stdout", None)
        code = cli_main.main(["jobs"])
        sys.stdout.close()
    assert code == ExitCode.OK


def test_policy_alone_is_its_help(edl: Cli) -> None:
    """As the program alone is."""
    assert edl("policy", columns=80) == edl("policy", "--help", columns=80)


def test_a_snapshot_needs_its_folder(edl: Cli, tmp_path: Path) -> None:
    """A name that the command gives the file meanwhile is nothing for its user."""
    run = edl("snapshot", str(tmp_path / "none" / "x.json"))
    assert (run.code, run.err) == (
        ExitCode.NOT_FOUND,
        f"edl: folder {tmp_path}/none does not exist: create it first\n",
    )


def test_a_snapshot_replaces_files_alone(edl: Cli, tmp_path: Path) -> None:
    """What a pipe or a device is called stays what it is; behind a link the file is written, and the link stays."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused = edl("snapshot", str(pipe))
    link, file = tmp_path / "link.json", tmp_path / "file.json"
    file.write_text("old")
    link.symlink_to(file)

    assert (refused.code, refused.out) == (ExitCode.USAGE, "")
    assert refused.err == f"edl: {pipe} is not an ordinary file: name another one\n"
    assert pipe.is_fifo()
    assert edl("snapshot", str(link)).code == ExitCode.OK
    assert link.is_symlink()
    assert '"kind": "edl.training/snapshot"' in file.read_text()


def test_a_job_that_is_not_elastic_is_none_of_edl(edl: Cli) -> None:
    """It is not taken for one that is missing, with itself as the nearest name."""
    spec = {"template": {"spec": {"containers": [{"name": "main"}]}}}
    edl.cluster.add(request.JOBS, {"metadata": {"name": "plain"}, "spec": spec}, "ml")
    text = "edl: job ml/plain is not an elastic job, so EDL does not manage it\n"
    for words in (("why", "job/plain"), ("why", "plain"), ("suspend", "plain")):
        run = edl(*words)
        assert (run.code, run.out, run.err) == (ExitCode.NOT_FOUND, "", text)
