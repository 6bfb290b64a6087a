"""Snapshots in a ConfigMap, and which master may write them."""

from pathlib import Path
from random import Random

import orjson
import pytest

from kube import request
from kube.errors import Unavailable
from kube.request import CONFIGMAPS
from lab.fake_api import FakeApi
from master import fence as fencing
from master.commands import Join, TakeOver, from_json
from master.errors import FencedError, JournalError
from master.fence import MAX_BYTES, ConfigMapFence, pack, unpack
from master.ledger import Ledger
from master.startup import open_ledger
from master.takeover import for_another_master
from runtime.call_checks import Json
from tests.master.ledger_calls import opened, ref, who, work

_PLACE = ("ml", "digits-master")


@pytest.fixture
def api() -> FakeApi:
    """An API server without that ConfigMap."""
    return FakeApi()


def _fence(api: FakeApi, holder: str) -> ConfigMapFence:
    return ConfigMapFence(api, *_PLACE, holder)


def _data(api: FakeApi) -> dict[str, str]:
    data: dict[str, str] = orjson.loads(api.send(request.get(CONFIGMAPS, *_PLACE)))["data"]
    return data


def test_what_is_written_is_read(api: FakeApi) -> None:
    """With generation, holder and outcome."""
    fence = _fence(api, "pod-1")
    assert fence.read().generation == 0
    fence.write(3, {"job": "digits"}, "")
    fence.write(3, {"job": "digits", "more": 1}, "done")
    stored = _fence(api, "other").read()

    assert (stored.generation, stored.holder, stored.state) == (
        3,
        "pod-1",
        {"job": "digits", "more": 1},
    )
    assert _data(api)["outcome"] == "done"


def test_a_configmap_that_was_made_empty_is_used(api: FakeApi) -> None:
    """The reconciler creates it, so that the Job owns it; labels on it stay."""
    body = {"metadata": {"name": _PLACE[1], "labels": {"x": "y"}}}
    api.send(request.create(CONFIGMAPS, _PLACE[0], body))
    fence = _fence(api, "pod-1")
    assert fence.read().state is None
    fence.write(1, {}, "")
    config_map = orjson.loads(api.send(request.get(CONFIGMAPS, *_PLACE)))

    assert config_map["metadata"]["labels"] == {"x": "y"}
    assert config_map["data"]["holder"] == "pod-1"


def test_an_old_master_cannot_write(api: FakeApi) -> None:
    """As soon as another one has written."""
    old, new = _fence(api, "pod-1"), _fence(api, "pod-2")
    old.write(1, {}, "")
    new.read()
    new.write(2, {}, "")

    with pytest.raises(FencedError, match="pod-2"):
        old.write(1, {"job": "digits"}, "")
    assert _data(api)["generation"] == "2"


def test_an_old_master_of_the_same_name_cannot_write(api: FakeApi) -> None:
    """A pod that returns without its journal has the same name as before."""
    old, new = _fence(api, "pod-1"), _fence(api, "pod-1")
    old.write(1, {}, "")
    new.read()
    new.write(2, {}, "")

    with pytest.raises(FencedError, match="pod-1"):
        old.write(1, {"job": "digits"}, "")
    assert _data(api)["generation"] == "2"


def test_a_generation_that_two_masters_have_belongs_to_the_first_that_wrote(api: FakeApi) -> None:
    """Both took over from one snapshot: the other fails at its first write."""
    _fence(api, "pod-1").write(1, {}, "")
    first, second = _fence(api, "pod-2"), _fence(api, "pod-3")
    for fence in (first, second):
        fence.read()
    first.write(2, {"by": 2}, "")

    with pytest.raises(FencedError, match="pod-2"):
        second.write(2, {"by": 3}, "")
    first.write(2, {"by": 2, "more": 1}, "")
    assert unpack(_data(api)["snapshot"]) == {"by": 2, "more": 1}


def test_a_label_does_not_fence(api: FakeApi) -> None:
    """Nor does a write of its own whose answer was lost: the holder is still this one."""
    fence = _fence(api, "pod-1")
    fence.write(1, {}, "")
    body = {"metadata": {"labels": {"x": "y"}}}
    api.send(request.merge_patch(CONFIGMAPS, *_PLACE, body))
    fence.write(1, {"n": 1}, "")

    assert unpack(_data(api)["snapshot"]) == {"n": 1}


def test_a_snapshot_too_large_for_a_configmap_is_an_error(api: FakeApi) -> None:
    """The error comes before the API server refuses them."""
    random = Path("/dev/urandom")
    with random.open("rb") as file, pytest.raises(JournalError, match="too large"):
        _fence(api, "pod-1").write(1, {"noise": file.read(800_000).hex()}, "")


def test_a_snapshot_that_json_cannot_hold_is_an_error(api: FakeApi) -> None:
    """It is tried again later; the master continues."""
    with pytest.raises(JournalError, match="as JSON"):
        _fence(api, "pod-1").write(1, {"n": 1 << 64}, "")


def test_a_damaged_snapshot_is_named(api: FakeApi) -> None:
    """No master starts with an empty ledger by mistake."""
    body = {
        "metadata": {"name": _PLACE[1]},
        "data": {"snapshot": "bm9uc2Vuc2U=", "generation": "1"},
    }
    api.send(request.create(CONFIGMAPS, _PLACE[0], body))
    with pytest.raises(JournalError, match="ml/digits-master is damaged"):
        _fence(api, "pod-1").read()
    with pytest.raises(ValueError, match="not a snapshot"):
        unpack(pack([]))  # type: ignore[arg-type]  # never stored


def test_a_snapshot_that_inflates_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed zeros are a thousand times as long; the limit is of the bytes that come out."""
    monkeypatch.setattr(fencing, "MAX_STATE_BYTES", 1000)
    assert unpack(pack({"n": 1})) == {"n": 1}
    with pytest.raises(ValueError, match="longer than 1000 bytes"):
        unpack(pack({"n": "0" * 1000}))
    with pytest.raises(ValueError, match="cut short"):
        unpack(pack({"n": 1})[:8])


def test_a_million_tasks_fit() -> None:
    """Half of them done, sixteen trainers at work."""
    names = [f"trainer-{number}" for number in range(16)]
    ledger = opened(*names, records=10**7, shuffle_seed=1)
    for name in names:
        work(ledger, name, 30)
    epoch = ledger.datasets["train"].open[0]
    epoch.cursor = 500_000

    assert len(pack(ledger.dump())) < 20_000


def test_a_thousand_trainers_fit_with_all_that_they_hold() -> None:
    """Another master forgets the answers to their calls, which are most of their state."""
    ledger = opened(records=10**9, task_records=256, shuffle_seed=5)
    random = Random(1)  # noqa: S311 - to be repeated
    for number in range(1_000):
        incarnation = f"{random.getrandbits(128):032x}"
        about = {"trainer": f"digits-trainer-{number}", "incarnation": incarnation}
        ledger.execute(from_json({"do": "join", **about}))
        tasks: list[Json] = []
        for call in (1, 2):
            done = [{**ref(lease), "steps": 8} for lease in tasks]
            fields = {"done": done, "want": 32, "call": call}
            tasks = ledger.execute(from_json({"do": "work", **about, **fields}))["tasks"]
    packed = pack(for_another_master(ledger.dump()))
    assert len(packed) < MAX_BYTES * 2 / 3
    successor = Ledger("digits")
    successor.load(unpack(packed))
    ledger.execute(TakeOver())
    successor.execute(TakeOver())

    assert successor.dump() == for_another_master(ledger.dump())


def test_a_new_pod_takes_over_and_the_old_one_stays_out(api: FakeApi, tmp_path: Path) -> None:
    """Also when the old one returns with its journal."""
    first = open_ledger(Ledger("digits"), tmp_path / "1", _fence(api, "pod-1"))
    first.execute(Join(**who("a")))
    first.close()
    second = open_ledger(Ledger("digits"), tmp_path / "2", _fence(api, "pod-2"))
    generation = second.ledger.generation
    second.close()
    again = open_ledger(Ledger("digits"), tmp_path / "2", _fence(api, "pod-2"))
    again.close()

    assert (generation, again.ledger.generation) == (2, 2)
    with pytest.raises(FencedError, match="generation 2, this journal is of 1"):
        open_ledger(Ledger("digits"), tmp_path / "1", _fence(api, "pod-1"))
    with pytest.raises(JournalError, match="of job 'digits'"):
        open_ledger(Ledger("mnist"), tmp_path / "3", _fence(api, "pod-3"))


def test_an_api_server_that_is_away_is_no_fence(api: FakeApi) -> None:
    """It may return later: the error names the object."""
    fence = _fence(api, "pod-1")
    api.faults.fail_next(Unavailable("no route"), 2)
    with pytest.raises(JournalError, match="cannot read ConfigMap ml/digits-master"):
        fence.read()
    with pytest.raises(JournalError, match="cannot write ConfigMap ml/digits-master"):
        fence.write(1, {}, "")


def test_a_write_whose_answer_was_lost_does_not_fence(api: FakeApi) -> None:
    """The next write finds its own name there."""
    fence = _fence(api, "pod-1")
    fence.write(1, {}, "")
    api.faults.lose_answers()
    with pytest.raises(JournalError):
        fence.write(1, {"n": 1}, "")
    fence.write(1, {"n": 2}, "")

    assert unpack(_data(api)["snapshot"]) == {"n": 2}
