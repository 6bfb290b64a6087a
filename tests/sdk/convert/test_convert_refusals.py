"""What `edl convert` refuses: each with the field, and with its line where there is one."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from edl.convert.convert import convert
from edl.errors import EdlError

FILES = Path(__file__).parent / "files"


def _changed(name: str, *path: str, to: Any) -> str:
    """A file as JSON, which is YAML, with one field changed."""
    body = yaml.safe_load((FILES / name).read_text())
    at = body
    for part in path[:-1]:
        at = at[int(part)] if isinstance(at, list) else at[part]
    at[path[-1]] = to
    return json.dumps(body)


REFUSED: list[tuple[str, tuple[str, ...], Any, str]] = [
    ("paddle.yaml", ("spec", "fault_tolerant"), False, "fault_tolerant is false"),
    ("paddle.yaml", ("spec", "trainer", "min-instance"), 7, "minimum of trainers is 7"),
    ("paddle.yaml", ("spec", "trainer", "min-instance"), 0, "spec.trainer.min-instance is 0"),
    ("paddle.yaml", ("spec", "trainer", "max-instance"), True, "write a whole number"),
    ("paddle.yaml", ("spec", "trainer", "resources", "requests", "cpu"), "250Mi", "write CPUs"),
    ("paddle.yaml", ("spec", "trainer", "resources", "limits", "memory"), "512m", "write memory"),
    (
        "paddle.yaml",
        ("spec", "trainer", "resources", "limits", "alpha.kubernetes.io/nvidia-gpu"),
        "0.5",
        "whole number of GPUs",
    ),
    ("paddle.yaml", ("spec", "trainer", "max_instance"), 6, "did you mean max-instance?"),
    ("paddle.yaml", ("spec", "tariner"), {}, "did you mean trainer?"),
    ("paddle.yaml", ("metadata", "name"), "a_b", "metadata.name is 'a_b'"),
    ("paddle.yaml", ("metadata", "name"), None, "has no name"),
    ("paddle.yaml", ("spec", "trainer"), "python", "write a mapping of fields"),
    ("paddle.yaml", ("spec", "volumes"), "data", "write a list"),
    ("paddle.yaml", ("kind",), "TrainJob", "did you mean paddlepaddle.org/v1 TrainingJob?"),
    ("volcano.yaml", ("spec", "tasks"), [], "spec.tasks is empty"),
    ("volcano.yaml", ("spec", "tasks", "2", "template"), {}, "write a pod template"),
    ("volcano.yaml", ("spec", "minAvailabel"), 1, "did you mean minAvailable?"),
    ("pytorchjob.yaml", ("spec", "elasticPolicy", "minReplicas"), 9, "minimum of trainers is 9"),
    ("pytorchjob.yaml", ("spec", "pytorchReplicaSpecs"), {}, "neither Master nor Worker"),
    (
        "hyperpod.yaml",
        ("spec", "replicaSpecs", "0", "template"),
        {"spec": {"containers": [{"name": "a"}]}},
        "containers.0 has no image",
    ),
    ("pytorchjob.yaml", ("spec", "nprocPerNode"), "ato", "write a whole number from 1"),
    ("pytorchjob.yaml", ("spec", "nprocPerNode"), 999, "write at most 128"),
    (
        "hyperpod.yaml",
        ("spec", "elasticPolicy", "replicaDiscreteValues"),
        ["2", "x"],
        "replicaDiscreteValues is 'x'",
    ),
    ("trainjob.yaml", ("spec", "trainer", "image"), "", "the runtime has it"),
    (
        "trainjob.yaml",
        ("spec", "trainer", "resourcesPerNode"),
        {"limits": {"memory": "512m"}},
        "resourcesPerNode.limits.memory is '512m': write memory",
    ),
    (
        "volcano.yaml",
        ("spec", "tasks", "2", "template", "spec", "containers", "0", "resources"),
        {"requests": {"cpu": "250Mi"}},
        "resources.requests.cpu is '250Mi': write CPUs",
    ),
    (
        "pytorchjob.yaml",
        (
            "spec",
            "pytorchReplicaSpecs",
            "Worker",
            "template",
            "spec",
            "containers",
            "0",
            "resources",
        ),
        {"requests": ["cpu"]},
        "resources.requests is ['cpu']: write a mapping of fields",
    ),
    ("hyperpod.yaml", ("spec", "replicaSpecs"), [], "replicaSpecs is empty"),
]


@pytest.mark.parametrize(("name", "path", "to", "text"), REFUSED)
def test_bad_fields_are_refused_by_name(
    name: str, path: tuple[str, ...], to: Any, text: str
) -> None:
    """In one line."""
    with pytest.raises(EdlError) as refused:
        convert(_changed(name, *path, to=to), name)

    assert text in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "line 1 is not YAML"),
        ("- 1\n- 2\n", "has no fields"),
        ("a: 1\n---\nb: 2\n", "has 2 documents"),
        ("# nothing\n", "has 0 documents"),
        ("a: &x {b: 1}\nc: *x\n", "line 1: aliases are not read"),
        ("a: 1\na: 2\n", "line 2: 'a' stands there twice"),
        ("<<: {a: 1}\n", "a field's name must be a text"),
        ("? [a]\n: 1\n", "a field's name must be a text"),
        ("a: !!python/object:os.system {}\n", "of no kind"),
        (
            "a: 1\nb: 0x" + "f" * 5_000,
            "line 2: 0xffffffffffffffffff... is a number of 5002 characters: quote it",
        ),
        (
            "a: 1" + ":1" * 100_000,
            "line 1: 1:1:1:1:1:1:1:1:1:1:... is a number of 200001 characters",
        ),
        ("a: !x 1\n", "could not determine a constructor"),
        ("a: " + "[" * 700, "maximum recursion depth exceeded"),
        ("a: " + "{b: " * 100 + "1" + "}" * 100, "nested too deeply"),
        ("apiVersion: v1\nkind: Pod\n", "is 'v1 Pod'"),
        ("paddlecloud submit -jobname a -cpuu 2", "did you mean cpu?"),
        ("paddlecloud submit -jobname a -cpu", "-cpu is ''"),
        ("paddlecloud submit -jobname a -faulttolerant=yes", "-faulttolerant is 'yes'"),
        ("paddlecloud submit -jobname a -passes 0", "-passes is '0'"),
        ("paddlecloud submit -jobname 'a", "cannot be read"),
        ("paddlecloud submit -cpu 1", "-jobname is ''"),
    ],
)
def test_what_is_no_job_file_is_refused(text: str, words: str) -> None:
    """With the line, where there is one."""
    with pytest.raises(EdlError, match=re.escape(words)):
        convert(text, "file.yaml")
