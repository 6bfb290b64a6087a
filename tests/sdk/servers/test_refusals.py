"""What training with parameter servers refuses, before anybody is asked or at the first step."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edl import servers
from edl.errors import DataError, SettingError

from tests.pserver.serving import RunningServers
from tests.sdk.conftest import Join
from tests.sdk.servers.planes import UNSAVED, plane
from tests.sdk.servers.trained import Line, Words
from tests.sdk.support.master_server import Server


@pytest.mark.parametrize(
    ("other", "options", "message"),
    [
        (Line(dim=4), {}, r"'w' has shape \[3\] at the servers and has shape \[4\]"),
        (Line(rate=0.2), {}, "optimizer.learning_rate is 0.1 at the servers and 0.2"),
        (Words(), {}, "'w' has shape .* and is missing in this trainer"),
        (Line(), {"code": {"git": "b"}}, "code.git is 'a' at the servers and 'b' in this trainer"),
        (Line(), {"max_staleness": 3}, "rules.max_staleness is None at the servers and 3"),
    ],
)
def test_trainers_of_different_programs_are_refused(
    two: RunningServers, join: Join, other: Line, options: dict[str, Any], message: str
) -> None:
    """The first one's counts; the text names both values."""
    code: dict[str, Any] = {"code": {"git": "a"}}
    servers.train(Line(), plane(count=20), 20, member=join("first", servers=two.urls), **code)
    with pytest.raises(servers.RequestRefused, match=message) as caught:
        servers.train(
            other, plane(count=20), 20, member=join("other", servers=two.urls), **(code | options)
        )

    assert caught.value.status == 409


class Bad(Line):
    """One of its steps is not finite."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._what = part

    def gradients(self, records: Any, lookup: servers.Lookup) -> servers.Gradients:
        """NaN in the third."""
        gradients = super().gradients(records, lookup)
        if len(self.losses) == 3:
            if self._what == "loss":
                return gradients._replace(metrics={"loss": float("nan")})
            return gradients._replace(dense={"w": np.full(3, np.inf)})
        return gradients


@pytest.mark.parametrize(("part", "named"), [("loss", "the loss"), ("w", "the gradient of 'w'")])
def test_what_is_no_number_fails_the_job(
    two: RunningServers, join: Join, server: Server, part: str, named: str
) -> None:
    """With trainer, step and parameter named, to the program and to the master."""
    with pytest.raises(servers.NonFiniteGradient, match="at step 3 of trainer t-7") as caught:
        servers.train(Bad(part), plane(), 20, member=join("t-7", servers=two.urls), **UNSAVED)

    assert str(caught.value).startswith(named)
    assert "step 3 of trainer t-7" in server.master.failed


@pytest.mark.parametrize("part", ["loss", "w"])
def test_what_is_no_number_may_be_skipped(
    two: RunningServers, join: Join, server: Server, part: str
) -> None:
    """It is counted here and at the servers, and the parameters do not have it."""
    result = servers.train(Bad(part), plane(), 20, on_nan="skip", member=join(servers=two.urls))
    status = two.all[0].server.stats.to_json()

    assert (result.steps, result.skipped, result.version) == (19, 1, 19)
    assert status["non_finite"]["newest"][0]["step"] == 3
    assert server.master.failed == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_nan": "ignore"}, "on_nan is 'ignore': it must be one of fail, skip"),
        ({"max_staleness": -1}, "max_staleness is -1: it must be at least 0"),
        ({"checkpoint_keep": 0}, "checkpoint_keep is 0: it must be at least 1"),
        ({"checkpoint_seconds": float("nan")}, "checkpoint_seconds is nan"),
    ],
)
def test_arguments_that_cannot_be_are_named(
    join: Join, options: dict[str, Any], message: str
) -> None:
    """Before anybody is asked."""
    with pytest.raises(DataError, match=message):
        servers.train(Line(), plane(), 20, member=join(), **options)


def test_the_environment_must_name_the_servers_in_order(
    two: RunningServers, join: Join, tmp_path: Path
) -> None:
    """And those of this job."""
    other = RunningServers(tmp_path / "other", 1, job="letters")
    for urls, message in (
        ((), "EDL_PARAMETER_SERVERS is not set"),
        (two.urls[::-1], "is number 1 of 2|is number 0 of 2"),
        (two.urls[:1], "that server is number 0 of 2"),
        (other.urls, "serves job 'letters', but this trainer belongs to job 'digits'"),
    ):
        with pytest.raises(SettingError, match=message):
            servers.train(Line(), plane(), 20, member=join(servers=urls))
    other.stop()


class Odd(Line):
    """Says something that cannot be."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self._changes = changes

    def initial(self) -> Any:
        """Returns the given value."""
        return self._changes.get("initial", super().initial())

    def optimizer(self) -> dict[str, Any]:
        """Returns the given value."""
        return {**super().optimizer(), **self._changes.get("optimizer", {})}

    def gradients(self, records: Any, lookup: servers.Lookup) -> servers.Gradients:
        """Returns the given value."""
        if "table" in self._changes:
            lookup(self._changes["table"], np.array([1]))
        return super().gradients(records, lookup)._replace(**self._changes.get("gradients", {}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"initial": {}}, "nothing to train"),
        ({"initial": {"w": np.zeros(3, int)}}, "'w' is int64: parameters must be floating point"),
        ({"initial": {"w": np.full(3, np.nan)}}, "'w' has NaN or infinite elements"),
        ({"optimizer": {"learning_rate": np.float32(1)}}, "optimizer: .*use numbers"),
        (
            {"gradients": {"dense": {"x": np.zeros(3)}}},
            "unknown parameter 'x'; parameters are: b, w",
        ),
        (
            {"gradients": {"dense": {"w": np.zeros(4)}}},
            r"'w' has shape \[4\] instead of \[3\]",
        ),
        ({"gradients": {"dense": {"w": np.zeros(3, int)}}}, "'w' is int64"),
        ({"gradients": {"sparse": {"t": ([1], [[1.0]])}}}, "unknown table 't'"),
        ({"table": "t"}, "unknown table 't'; tables are: none"),
    ],
)
def test_a_worker_that_says_what_cannot_be_is_told(
    two: RunningServers, join: Join, changes: dict[str, Any], message: str
) -> None:
    """One line that names it."""
    with pytest.raises(DataError, match=message):
        servers.train(Odd(**changes), plane(), 20, member=join(servers=two.urls), **UNSAVED)


@pytest.mark.parametrize(
    ("ids", "rows", "message"),
    [
        ([1, 1], [[1.0], [1.0]], "has an id twice"),
        ([1], [[1.0, 2.0]], r"have shape \[1, 2\]: 1 ids of 1 numbers"),
        ([0.5], [[1.0]], "ids are float64"),
        ([[1]], [[1.0]], r"of shape \[1, 1\]"),
    ],
)
def test_rows_that_cannot_be_are_refused_here(
    two: RunningServers, join: Join, ids: Any, rows: Any, message: str
) -> None:
    """Before anything is sent."""
    client_ = servers.connect(
        Words(), rules=servers.Rules(None, False, 0, 0.0, 3), member=join(servers=two.urls)
    )
    with pytest.raises(DataError, match=message):
        client_.push(servers.Gradients({}, {"words": (ids, rows)}, {}), 1, 1)
    with pytest.raises(servers.NonFiniteGradient, match="table 'words'"):
        client_.push(servers.Gradients({}, {"words": ([1], [[np.nan]])}, {}), 1, 1)
    assert client_.push(servers.Gradients({}, {"words": ([1], [[1.0]])}, {}), 1, 1).applied
    client_.close()
