"""Every documented key of PaddlePaddle EDL's and PaddleCloud's jobs: converted, or named."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from edl.convert.convert import convert
from edl.errors import EdlError

Converted = Callable[[dict[str, Any]], Any]


def _file(*path: str, value: Any) -> str:
    """A fault-tolerant job with one more key, as JSON, which is YAML: its key has line 1."""
    spec: dict[str, Any] = {
        "fault_tolerant": True,
        "trainer": {"min-instance": 2, "max-instance": 6, "entrypoint": "python train.py"},
        "pserver": {"min-instance": 2, "max-instance": 2},
        "master": {},
    }
    at = spec
    for name in path[:-1]:
        at = at.setdefault(name, {})
    at[path[-1]] = value
    return json.dumps(
        {
            "apiVersion": "paddlepaddle.org/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "example"},
            "spec": spec,
        }
    )


def _container(spec: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = spec["trainer"]["template"]["spec"]["containers"][0]
    return container


def _variable(name: str) -> Converted:
    return lambda spec: {e["name"]: e.get("value") for e in _container(spec)["env"]}[name]


def _pod(name: str) -> Converted:
    return lambda spec: spec["trainer"]["template"]["spec"].get(name)


def _of(role: str, name: str) -> Converted:
    return lambda spec: spec[role][name]


def _of_container(name: str) -> Converted:
    return lambda spec: _container(spec)[name]


_VOLUME = [{"name": "data", "emptyDir": {}}]
_MOUNT = [{"name": "data", "mountPath": "/data"}]
_AMOUNTS = {"requests": {"cpu": "2", "memory": "1Gi"}}
CONVERTED: list[tuple[tuple[str, ...], Any, Converted, Any]] = [
    (("image",), "own:1", _of_container("image"), "own:1"),
    (("port",), 8000, _variable("PADDLE_INIT_PORT"), "8000"),
    (("ports_num",), 3, _variable("PADDLE_INIT_PORTS_NUM"), "3"),
    (("ports_num_for_sparse",), 2, _variable("PADDLE_INIT_PORTS_NUM_FOR_SPARSE"), "2"),
    (("fault_tolerant",), True, lambda spec: spec["backoffLimit"], 2),
    (("passes",), 7, _variable("PADDLE_INIT_NUM_PASSES"), "7"),
    (("trainer", "passes"), 7, _variable("PADDLE_INIT_NUM_PASSES"), "7"),
    (("passes",), 7, _of("master", "epochs"), 7),
    (("trainer", "passes"), 7, _of("master", "epochs"), 7),
    (("volumes",), _VOLUME, _pod("volumes"), _VOLUME),
    (("VolumeMounts",), _MOUNT, _of_container("volumeMounts"), _MOUNT),
    (("volumeMounts",), _MOUNT, _of_container("volumeMounts"), _MOUNT),
    (("imagePullSecrets",), [{"name": "s"}], _pod("imagePullSecrets"), [{"name": "s"}]),
    (("NodeSelector",), {"disk": "ssd"}, _pod("nodeSelector"), {"disk": "ssd"}),
    (("nodeSelector",), {"disk": "ssd"}, _pod("nodeSelector"), {"disk": "ssd"}),
    (("trainer", "entrypoint"), "./a", _of_container("command"), ["sh", "-c", "./a"]),
    (("trainer", "workspace"), "/w", _of_container("workingDir"), "/w"),
    (("trainer", "min-instance"), 3, _of("trainer", "min"), 3),
    (("trainer", "max-instance"), 9, _of("trainer", "max"), 9),
    (("trainer", "resources"), _AMOUNTS, _of_container("resources"), _AMOUNTS),
    (("pserver", "min-instance"), 1, _of("parameterServers", "replicas"), 1),
    (("pserver", "resources"), _AMOUNTS, _of("parameterServers", "cpu"), "2"),
    (("master", "resources"), _AMOUNTS, _of("master", "memory"), "1Gi"),
    (("master", "resources"), {"limits": {"cpu": "1"}}, _of("master", "cpu"), "1"),
]
"""Path of a key in `spec`, its value, and where the TrainingJob has it."""
NAMED: list[tuple[tuple[str, ...], Any, bool]] = [
    (("hostNetwork",), True, True),
    (("host_network",), True, True),
    (("HostNetwork",), True, True),
    (("trainer", "etcd-endpoint"), "http://etcd", False),
    (("trainer", "replicaSpec"), {"a": 1}, False),
    (("pserver", "replicaSpec"), {"a": 1}, False),
    (("master", "replicaSpec"), {"a": 1}, False),
    (("pserver", "max-instance"), 4, False),
    (("master", "etcd-endpoint"), "http://etcd", False),
]
"""Path of a key without counterpart, its value, and whether its meaning is lost."""


@pytest.mark.parametrize(("path", "value", "converted", "expected"), CONVERTED)
def test_a_key_with_a_counterpart_is_converted(
    path: tuple[str, ...], value: Any, converted: Converted, expected: Any
) -> None:
    """Under both spellings where the original's tag was misspelt."""
    training_job, _ = convert(_file(*path, value=value), "example.yaml")

    assert converted(training_job["spec"]) == expected


@pytest.mark.parametrize(("path", "value", "is_lost"), NAMED)
def test_a_key_without_counterpart_is_named_with_its_line(
    path: tuple[str, ...], value: Any, is_lost: bool
) -> None:
    """As lost where its meaning is, as a note where EDL does the same in another way."""
    _, notes = convert(_file(*path, value=value), "example.yaml")
    lines = notes.losses if is_lost else notes.hints
    field = ".".join(("spec", *path))

    assert [line for line in lines if line.startswith(f"line 1: {field}: ")]


FLAGS: list[tuple[str, str, Converted, Any]] = [
    ("jobname", "other", lambda spec: spec["name"], "other"),
    ("parallelism", "3", _of("trainer", "min"), 3),
    ("cpu", "2", lambda spec: _container(spec)["resources"]["requests"]["cpu"], "2"),
    ("gpu", "1", lambda spec: _container(spec)["resources"]["requests"]["nvidia.com/gpu"], "1"),
    ("memory", "2Gi", lambda spec: _container(spec)["resources"]["requests"]["memory"], "2Gi"),
    ("pservers", "4", _of("parameterServers", "replicas"), 4),
    ("pscpu", "3", _of("parameterServers", "cpu"), "3"),
    ("psmemory", "3Gi", _of("parameterServers", "memory"), "3Gi"),
    ("entry", "./a", _of_container("command"), ["sh", "-c", "./a"]),
    ("topology", "t.py", _variable("TOPOLOGY"), "t.py"),
    ("passes", "5", _variable("PADDLE_INIT_NUM_PASSES"), "5"),
    ("image", "own:1", _of_container("image"), "own:1"),
    ("registry", "secret", _pod("imagePullSecrets"), [{"name": "secret"}]),
    ("faulttolerant", "true", lambda spec: spec["master"], {"enabled": True, "epochs": 1}),
]


@pytest.mark.parametrize(("flag", "value", "converted", "expected"), FLAGS)
def test_a_flag_of_paddlecloud_is_converted(
    flag: str, value: str, converted: Converted, expected: Any
) -> None:
    """Every one of `paddlecloud submit`; the bounds count where the job is fault-tolerant."""
    name = "" if flag == "jobname" else "-jobname example"
    text = f"paddlecloud submit {name} -{flag}={value} ./package"
    training_job, _ = convert(text, "submit.sh")

    assert converted({**training_job["spec"], "name": training_job["metadata"]["name"]}) == expected


def test_bounds_of_paddlecloud_count_where_it_is_fault_tolerant() -> None:
    """Elsewhere the number is fixed."""
    words = "paddlecloud submit -jobname a -parallelism 3 -min_instance 2 -max_instance 9"
    fixed, _ = convert(words, "submit.sh")
    elastic, _ = convert(f"{words} -faulttolerant=true", "submit.sh")

    assert (fixed["spec"]["trainer"]["min"], fixed["spec"]["trainer"]["max"]) == (3, 3)
    assert (elastic["spec"]["trainer"]["min"], elastic["spec"]["trainer"]["max"]) == (2, 9)
    assert (fixed["spec"]["backoffLimit"], elastic["spec"]["backoffLimit"]) == (0, 2)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("trainer", "min-instance"), 9, "minimum of trainers is 9 and the maximum 6"),
        (("trainer", "min-instance"), -1, "write a whole number from 1"),
        (("trainer", "min-instance"), 1.5, "write a whole number from 1"),
        (("fault_tolerant",), False, "fault_tolerant is false"),
        (("trainer", "resources"), {"requests": {"cpu": "250Mi"}}, "write CPUs"),
        (("trainer", "resources"), {"requests": {"gpu": "1"}}, "requests.gpu does not exist"),
        (("trainer", "resources"), {"request": {}}, "did you mean requests?"),
        (("master", "resources"), {"limits": {"memory": "8Mi"}}, "memory"),
        (("pserver", "min_instance"), 2, "did you mean min-instance?"),
        (("hostNetwrok",), True, "did you mean hostNetwork?"),
        (("fault-tolerant",), True, "did you mean fault_tolerant?"),
        (("trainer", "workdir"), "/w", "does not exist"),
    ],
)
def test_bad_input_is_refused_with_its_line(path: tuple[str, ...], value: Any, text: str) -> None:
    """Also what the original's validation let pass; before anything is created."""
    with pytest.raises(EdlError) as refused:
        convert(_file(*path, value=value), "example.yaml")

    assert text in str(refused.value)
    assert str(refused.value).startswith("line 1: spec.")
