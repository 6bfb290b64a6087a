"""`edl submit`: what it prints is what the cluster takes, and bad wishes are refused in one line."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from edl import __main__

from policy.admission import mutation
from policy.admission.views import JobView

MODEL = """\
def model(): ...
def loss(outputs, labels): ...
def optimizer(parameters): ...
"""
LEAST = ("--name", "digits", "--image", "digits:1", "--min", "2", "--max", "8")
DATA = ("--data", "/data/train.npz")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's file."""
    path = tmp_path / "digits.py"
    path.write_text(MODEL)
    return path


def _submit(model: Path, *arguments: str) -> int:
    return __main__.main(["submit", str(model), *LEAST, *DATA, *arguments])


def _printed(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    printed = json.loads(capsys.readouterr().out)
    assert (printed["apiVersion"], printed["kind"]) == ("v1", "List")
    files, job = printed["items"]
    return files, job


def test_models_in_torch_are_submitted_where_torch_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The file's text is enough: pods run it, with the command for any framework."""
    example_file = Path(__file__).parents[3] / "examples/models/digits_torch.py"
    assert _submit(example_file) == 0
    files, job = _printed(capsys)
    assert files["data"] == {"digits_torch.py": example_file.read_text()}
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[:3] == ["edl", "train", "/etc/edl/model/digits_torch.py"]


def test_it_prints_a_config_map_and_an_elastic_job(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Job is one that EDL's webhook takes, and runs `edl train` with the same flags."""
    helper = model.with_name("layers.py")
    helper.write_text("# caf\u00e9\r\n")
    arguments = ("--include", str(helper), "--epochs", "3", "--seed=7", "--scale-learning-rate")
    assert (
        _submit(model, *arguments, "--cpu", "2500m", "--claim", "data:/data:ro", "--weight", "3")
        == 0
    )
    files, job = _printed(capsys)
    spec = job["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]

    assert files["data"] == {"digits.py": MODEL, "layers.py": "# caf\u00e9\r\n"}
    assert files["immutable"] is True
    settings = mutation.check_job(JobView.parse(job))
    assert (settings.min_trainers, settings.max_trainers) == (2, 8)
    assert settings.master
    assert settings.weight == 3
    assert container["command"] == [
        *("edl", "train", "/etc/edl/model/digits.py", "--data=/data/train.npz", "--epochs=3"),
        *("--micro-batches=8", "--scale-learning-rate", "--seed=7"),
    ]
    assert container["env"] == [{"name": "OMP_NUM_THREADS", "value": "2"}]
    assert pod["volumes"] == [
        {"name": "model", "configMap": {"name": files["metadata"]["name"]}},
        {"name": "claim-0", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    assert container["volumeMounts"][1] == {
        "name": "claim-0",
        "mountPath": "/data",
        "readOnly": True,
    }


def test_the_flags_it_hands_on_are_flags_of_edl_train(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them: `edl train` gets as far as looking for the data."""
    claim = ("--claim", "out:/out", "--checkpoints", "/out/c", "--export", "/out/m")
    arguments = (
        "--evaluate",
        "/data/test.npz",
        "--evaluate-every",
        "50",
        "--checkpoint-every",
        "10",
    )
    assert (
        _submit(model, *claim, *arguments, "--on-nan", "skip", "--batch-size", "32", "--sync") == 0
    )
    _, job = _printed(capsys)
    words = job["spec"]["template"]["spec"]["containers"][0]["command"][3:]
    monkeypatch.delenv("EDL_MASTER", raising=False)

    assert __main__.main(["train", str(model), *words]) == 2
    assert "--data is '/data/train.npz': no such file" in capsys.readouterr().err


def test_parameter_servers_are_asked_for_by_annotations(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two by default; their checkpoints go into a claim of their own."""
    arguments = (
        "--server-cpu",
        "1",
        "--server-memory",
        "2Gi",
        "--server-claim",
        "ps",
        "--modulate",
    )
    assert (
        _submit(model, "--async", *arguments, "--max-staleness", "4", "--checkpoint-every", "9")
        == 0
    )
    _, job = _printed(capsys)
    annotations = {
        name.partition("/")[2]: value
        for name, value in job["metadata"]["annotations"].items()
        if "server" in name or "claim" in name
    }

    assert annotations == {
        "parameter-servers": "2",
        "parameter-server-cpu": "1",
        "parameter-server-memory": "2Gi",
        "checkpoint-claim": "ps",
    }
    words = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert words[4:] == ["--async", "--max-staleness=4", "--modulate", "--checkpoint-every=9"]


def test_more_trainers_get_more_parts_of_a_step(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that all of them find work."""
    assert _submit(model, "--max", "20") == 0
    _, job = _printed(capsys)

    assert "--micro-batches=20" in job["spec"]["template"]["spec"]["containers"][0]["command"]


def test_the_code_of_a_job_never_changes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another text is another ConfigMap."""
    names = set()
    for text in (MODEL, MODEL, f"{MODEL}# better\n"):
        model.write_text(text)
        assert _submit(model, "--namespace", "team") == 0
        files, job = _printed(capsys)
        names.add(files["metadata"]["name"])
        assert files["metadata"]["namespace"] == job["metadata"]["namespace"] == "team"

    assert len(names) == 2


def test_variables_are_not_put_into_the_command(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kubernetes would replace `$(NAME)`."""
    assert __main__.main(["submit", str(model), *LEAST, "--data", "/data/$(HOME)"]) == 0
    _, job = _printed(capsys)

    assert "--data=/data/$$(HOME)" in job["spec"]["template"]["spec"]["containers"][0]["command"]


BAD = [
    (["--name", "My_Job"], "--name is 'My_Job': write at most 63 lower-case"),
    (["--name", "a" * 64], "write at most 63"),
    (["--namespace", "Team"], "--namespace is 'Team'"),
    (["--image", "a b"], "--image is 'a b': write an image"),
    (["--min", "9"], "--min is 9 and --max is 8: min must not exceed max"),
    (["--cpu", "two"], "--cpu is 'two': write CPUs, for example 2, 0.5 or 500m"),
    (["--cpu", "0"], "--cpu is '0'"),
    (["--cpu", "0.0001"], "--cpu is '0.0001'"),
    (["--memory", "4G1"], "--memory is '4G1': write memory, for example 512Mi"),
    (["--memory", "512"], "--memory is '512', which is 512 bytes: write at least 16Mi"),
    (["--queue", ""], "--queue is ''"),
    (["--claim", "out"], "--claim is 'out': write NAME:/path"),
    (["--claim", "out:data"], "write NAME:/path"),
    (["--claim", "out:/a/../b"], "write NAME:/path"),
    (["--claim", "out:/data:rw"], "write NAME:/path"),
    (["--claim", "a:/x", "--claim", "b:/x/"], "--claim b:/x: that path is taken"),
    (["--claim", "a:/etc/edl/model"], "that path is taken"),
    (["--data", "data/train.npz"], "--data is 'data/train.npz': write the path that it has"),
    (["--export", "/out"], "--export is '/out', which is in no volume"),
    (["--export", "/out/m", "--claim", "a:/out:ro"], "--export is in claim a, which is read only"),
    (["--servers", "2"], "--servers is for --async"),
    (["--server-cpu", "2"], "--server-cpu is for --async"),
    (["--async", "--server-cpu", "x"], "--server-cpu is 'x'"),
    (["--async", "--server-memory", "x"], "--server-memory is 'x'"),
    (["--async", "--server-claim", "X"], "--server-claim is 'X'"),
    (["--async", "--checkpoints", "/c"], "save checkpoints to --server-claim NAME"),
    (["--async", "--micro-batches", "4"], "--micro-batches is for --sync"),
    (["--async", "--sync"], "--sync and --async are mutually exclusive"),
    (["--micro-batches", "4"], "--max is 8, but a step has only 4 micro-batches"),
    (["--batch-size", "4"], "--max is 8, but a step has only 4 records (--batch-size)"),
    (["--micro-batches", "65"], "--micro-batches is 65, but --batch-size is 64"),
    (["--checkpoint-every", "5"], "--checkpoint-every needs --checkpoints DIR"),
    (["--evaluate-every", "5"], "--evaluate-every needs --evaluate PATH"),
    (["--include", "no-such-file"], "cannot read no-such-file"),
]


@pytest.mark.parametrize(
    ("arguments", "text"), BAD, ids=["_".join(arguments)[:40] for arguments, _ in BAD]
)
def test_what_cannot_be_is_refused_in_one_line(
    model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    """With code 2, and nothing is printed."""
    assert _submit(model, *arguments) == 2
    output = capsys.readouterr()

    assert text in output.err
    assert (output.err.count("\n"), output.out) == (1, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"def model(): ...\n", "has no function loss(outputs, labels)"),
        (b"def model(:\n", "digits.py:1 is not valid Python: invalid syntax"),
        (b"\xff\xfe", "is not UTF-8 text (byte 0)"),
        (b"a\0b", "is not valid Python"),
        (MODEL.encode() + b"#" * (1 << 20), "and a ConfigMap holds 1048576"),
    ],
)
def test_a_model_file_that_cannot_train_is_not_submitted(
    model: Path, capsys: pytest.CaptureFixture[str], text: bytes, message: str
) -> None:
    """Nothing is run for that: no framework is needed to submit."""
    model.write_bytes(text)

    assert _submit(model) == 2
    assert message in capsys.readouterr().err


def test_functions_may_come_from_anywhere(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Imported, assigned, or made under a condition."""
    text = "from layers import net as model\nloss = print\ntry:\n    from a import optimizer\n"
    for source in (
        f"{text}except ImportError:\n    optimizer: object = None\n",
        "from all import *\n",
        "model, (loss, *optimizer) = print, (len, abs)\n",
    ):
        model.write_text(source)
        assert _submit(model) == 0
        capsys.readouterr()


@pytest.mark.parametrize("name", ["a b.py", "digits.py"])
def test_a_file_that_cannot_go_along_is_named(
    model: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Its name is not a valid key of a ConfigMap, or a duplicate."""
    path = model.parent / "more" / name
    path.parent.mkdir()
    path.write_text("")

    assert _submit(model, "--include", str(path)) == 2
    assert name in capsys.readouterr().err


def test_numbers_are_read_strictly(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line as well, from the parser."""
    with pytest.raises(SystemExit) as ended:
        _submit(model, "--epochs", "0")

    assert ended.value.code == 2
    assert "--epochs: '0': write a whole number from 1 to 1000000" in capsys.readouterr().err


KUBECTL = """#!/bin/sh
count=$(ls "$OUT" | wc -l)
cat > "$OUT/$count"
echo "$@" > "$OUT/$count.words"
test "$count" = "$FAILS" && {{ echo "Error from server: denied" >&2; exit 1; }}
printf '{{"metadata": {{"uid": "u-1"}}, "spec": %s}}' "$SPEC"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a stand-in of kubectl was given, in a folder."""
    home, out = tmp_path / "bin", tmp_path / "calls"
    home.mkdir()
    out.mkdir()
    program = home / "kubectl"
    program.write_text(KUBECTL.format())
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{home}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("OUT", str(out))
    monkeypatch.setenv("FAILS", "never")
    monkeypatch.setenv("SPEC", '{"managedBy": "edl.training/reconciler"}')
    return out


def test_apply_makes_the_config_map_the_jobs_own(
    model: Path, calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that it is deleted with the Job."""
    assert _submit(model, "--apply") == 0
    job, files = (json.loads((calls / name).read_text()) for name in ("0", "2"))

    assert (calls / "0.words").read_text() == "create -f - -o json\n"
    assert job["kind"] == "Job"
    assert files["metadata"]["ownerReferences"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "digits", "uid": "u-1"}
    ]
    assert "job digits submitted with 2 to 8 trainers" in capsys.readouterr().out


@pytest.mark.usefixtures("calls")
def test_a_job_that_no_edl_has_taken_is_called_an_ordinary_one(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there, but never gets more than its parallelism, and no master."""
    monkeypatch.setenv("SPEC", "{}")

    assert _submit(model, "--apply") == 0
    out, err = capsys.readouterr()
    assert "submitted" not in out
    assert "edl: job digits was created as an ordinary Job that EDL does not manage" in err
    assert err.count("\n") == 1


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(
    ("fails", "text"),
    [
        ("0", "kubectl refused Job digits: Error from server: denied"),
        (
            "2",
            "created the Job, but not its ConfigMap: kubectl refused ConfigMap digits-model-",
        ),
    ],
)
def test_a_refusal_of_the_cluster_is_quoted(
    model: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fails: str,
    text: str,
) -> None:
    """And what is left of the job, if anything is."""
    monkeypatch.setenv("FAILS", fails)

    assert _submit(model, "--apply") == 2
    assert text in capsys.readouterr().err


def test_without_kubectl_the_printed_json_is_the_way_out(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be used elsewhere."""
    monkeypatch.setenv("PATH", "")

    assert _submit(model, "--apply") == 2
    assert "kubectl was not found: install it, or drop --apply" in capsys.readouterr().err
