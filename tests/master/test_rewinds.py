"""Remainders of tasks, positions in a data set, and rewinds to them."""

import orjson
import pytest

from master import rewinds
from master.commands import Describe, Evaluate, Expire, Rewind, from_json
from master.ledger import Ledger
from runtime.call_checks import Json, RefusedError
from tests.master.ledger_calls import done, join, opened, position_of, ref, rewind, shape, who, work


def _progress(ledger: Ledger) -> Json:
    return ledger.datasets["train"].progress()


def _reopened(ledger: Ledger) -> Ledger:
    """The ledger that another process reads from a snapshot."""
    restored = Ledger("digits")
    restored.load(orjson.loads(orjson.dumps(ledger.dump())))
    assert restored.dump() == ledger.dump()
    return restored


# -- remainders ----------------------------------------------------------------------------------


def test_a_task_that_is_given_up_in_its_midst_goes_on_behind_what_is_trained() -> None:
    """What is trained is counted, and the remainder is the first that is leased next."""
    ledger = opened("a", "b")
    first, second = work(ledger, "a", want=2)["tasks"]
    kept = {"trained": 6, "counted": 6, "steps": 2}
    assert work(ledger, "a", back=[{**ref(first), **kept}])["results"] == ["accepted"]

    assert (_progress(ledger)["done_records"], ledger.steps, ledger.lost_records) == (6, 2, 0)
    ledger = _reopened(ledger)
    (remainder,) = work(ledger, "b", want=1)["tasks"]
    assert remainder["task"] == first["task"]
    assert (remainder["start"], remainder["end"]) == (6, 10)
    done(ledger, "b", [remainder])
    done(ledger, "a", [second])
    assert _progress(ledger)["done_records"] == 20
    assert _progress(ledger)["done_tasks"] == 2


def test_a_trainer_that_leaves_gives_back_remainders() -> None:
    """Those of which it says so: what a killed one has trained nobody knows exactly."""
    ledger = opened("a", "b")
    first, second = work(ledger, "a", want=2)["tasks"]
    leases = [{**ref(first), "trained": 6, "counted": 6}]
    trained = {first["task"]: 6, second["task"]: 4}
    ledger.execute(from_json({"do": "leave", **who("a"), "back": leases, "trained": trained}))

    assert _progress(ledger)["done_records"] == 6
    assert ledger.lost_records == 4
    assert [lease["start"] for lease in work(ledger, "b", want=2)["tasks"]] == [6, 10]


def test_remainders_of_remainders_add_up() -> None:
    """Also where the trainer that has the last one is killed, and where the task fails."""
    ledger = opened("a", "b")
    (lease,) = work(ledger, "a", want=1)["tasks"]
    work(ledger, "a", back=[{**ref(lease), "trained": 3, "counted": 3}])
    (lease,) = work(ledger, "b", want=1)["tasks"]
    work(ledger, "b", back=[{**ref(lease), "trained": 3, "counted": 2}])
    assert ledger.lost_records == 1
    (lease,) = work(ledger, "b", want=1)["tasks"]
    ledger.execute(Expire({"b": {lease["task"]: 2}}))
    (lease,) = work(ledger, "a", want=1)["tasks"]
    assert lease["start"] == 5
    failed = {**ref(lease), "error": "no", "transient": False, "counted": 1}
    work(ledger, "a", failed=[failed])

    assert _progress(ledger)["done_records"] == 6
    assert ledger.datasets["train"].open[0].outstanding[0].trained == 6


def test_the_records_of_a_dropped_task_that_were_trained_are_done() -> None:
    """Only the others are dropped."""
    ledger = Ledger("digits", max_dropped_share=1.0)
    ledger.execute(Describe("train", shape()))
    join(ledger, "a")
    (lease,) = work(ledger, "a", want=1)["tasks"]
    work(ledger, "a", back=[{**ref(lease), "trained": 4, "counted": 4}])
    for _ in range(3):
        (lease, *_) = work(ledger, "a", want=1)["tasks"]
        work(ledger, "a", failed=[{**ref(lease), "error": "no"}])

    progress = _progress(ledger)
    assert (progress["done_records"], progress["dropped_records"]) == (4, 6)


def test_all_of_a_task_is_done_by_an_acknowledgement_only() -> None:
    """A trainer that claims more than there is leaves a record to do."""
    ledger = opened("a")
    (lease,) = work(ledger, "a", want=1)["tasks"]
    work(ledger, "a", back=[{**ref(lease), "trained": 99, "counted": 99}])

    assert _progress(ledger)["done_records"] == 9
    assert work(ledger, "a", want=1)["tasks"][0]["start"] == 9


@pytest.mark.parametrize(("kind", "start"), [("evaluation", 6), ("prediction", 0), ("export", 0)])
def test_metrics_of_both_parts_are_summed_up_and_outputs_are_whole(kind: str, start: int) -> None:
    """An evaluation may be cut anywhere; a task's outputs are one file."""
    ledger = Ledger("digits")
    ledger.execute(Describe("train", shape(records=10, kind=kind)))
    join(ledger, "a")
    (lease,) = work(ledger, "a", want=1)["tasks"]
    part = {"trained": 6, "counted": 6, "metrics": {"loss": 1.0}}
    work(ledger, "a", back=[{**ref(lease), **part}])
    (lease,) = work(ledger, "a", want=1)["tasks"]
    assert lease["start"] == start
    done(ledger, "a", [lease], metrics={"loss": 2.0})

    assert _progress(ledger)["done_records"] == 10
    if kind == "evaluation":
        evaluation = ledger.datasets["train"].evaluations[0].to_json()
        assert evaluation["metrics"] == {"loss": pytest.approx(1.4)}
        assert evaluation["records"] == 10


def test_a_remainder_survives_a_takeover() -> None:
    """The next master takes over the lease of the remainder, and counts each record once."""
    ledger = opened("a", "b")
    (lease,) = work(ledger, "a", want=1)["tasks"]
    work(ledger, "a", back=[{**ref(lease), "trained": 6, "counted": 6}])
    (lease,) = work(ledger, "b", want=1)["tasks"]
    ledger = _reopened(ledger)
    ledger.execute(from_json({"do": "takeover"}))
    assert join(ledger, "b", held=[ref(lease)])["lost"] == []
    join(ledger, "a")
    done(ledger, "b", [lease])

    assert _progress(ledger)["done_records"] == 10


# -- rewinds -------------------------------------------------------------------------------------


def test_what_was_trained_after_the_position_is_trained_again() -> None:
    """Counts, steps and tasks are those of the position; the status has what is trained again."""
    ledger = opened("a", "b", epochs=2, shuffle_seed=3)
    tasks = work(ledger, "a", want=2)["tasks"]
    done(ledger, "a", tasks)
    position = orjson.loads(orjson.dumps(position_of(ledger)))
    tasks = work(ledger, "a", want=2)["tasks"]
    done(ledger, "a", tasks)
    second = work(ledger, "b", want=1)["tasks"]
    done(ledger, "b", second)

    answer = rewind(ledger, 1, position)
    assert (answer["records"], answer["steps"]) == (30, 3)
    ledger = _reopened(ledger)
    assert position_of(ledger) == position
    lease = work(ledger, "b", want=9)["tasks"][0]
    assert lease["task"] == tasks[0]["task"]
    assert lease["attempt"] > answer["base"] > tasks[0]["attempt"]
    assert _progress(ledger)["redone_records"] == 30
    event = ledger.rollbacks.newest[0]
    assert (event["event"], event["records"], event["redone"]) == ("generation-0", 30, 30)


def test_what_a_model_has_beyond_the_position_is_not_trained_again() -> None:
    """A position is older than the model by what its trainers had not reported yet."""
    ledger = opened("a", epochs=3)
    position = position_of(ledger)
    remaining = {"train/0/1": 0, "train/0/2": 4, "train/1/3": 1}
    rewind(ledger, 1, position, remaining=remaining)

    assert _progress(ledger)["done_records"] == 10 + 6 + 9
    leases = work(ledger, "a", want=3)["tasks"]
    assert [(lease["task"], lease["start"]) for lease in leases] == [
        ("train/0/2", 26),
        ("train/0/0", 0),
        ("train/0/3", 30),
    ]
    done(ledger, "a", leases)
    assert [lease["start"] for lease in work(ledger, "a", want=9)["tasks"]] == [39, 0, 10, 20]


def test_a_model_that_has_nothing_begins_anew() -> None:
    """Everything is trained again; leases are over, and late reports count nothing."""
    ledger = opened("a", "b")
    leases = work(ledger, "b", want=4)["tasks"]
    done(ledger, "b", leases[:3])

    assert rewind(ledger, 1, None)["records"] == 30
    assert done(ledger, "b", leases) == ["accepted", "accepted", "accepted", "stale"]
    assert _progress(ledger)["done_records"] == 0
    again = work(ledger, "b", want=4)["tasks"]
    assert [lease["task"] for lease in again] == [lease["task"] for lease in leases]
    assert done(ledger, "b", leases[3:]) == ["stale"]
    assert done(ledger, "b", again) == ["accepted"] * 4
    assert ledger.state() == "done"


def test_a_process_that_joins_again_reports_nothing_of_a_lost_model() -> None:
    """Neither its acknowledgements nor its leases of before count."""
    ledger = opened("a", "b")
    first, second = work(ledger, "b", want=2)["tasks"]
    done(ledger, "b", [first])
    rewind(ledger, 1, None)
    ledger.execute(from_json({"do": "takeover"}))
    join(ledger, "a")
    answer = join(ledger, "b", done=[ref(first)], held=[ref(second)])

    assert answer["lost"] == [second["task"]]
    assert _progress(ledger)["done_records"] == 0
    assert ledger.trained_again_records == 0


def test_an_old_restorer_rewinds_nothing_and_a_repeated_call_nothing_more() -> None:
    """The order is that of generations, and of tickets in one."""
    ledger = opened("a")
    done(ledger, "a", work(ledger, "a", want=1)["tasks"])
    first = rewind(ledger, 2, None, ticket=4)
    done(ledger, "a", work(ledger, "a", want=2)["tasks"])
    assert rewind(ledger, 2, None, ticket=4) == first
    for generation, ticket in ((1, 9), (2, 3)):
        with pytest.raises(RefusedError) as caught:
            rewind(ledger, generation, None, ticket=ticket)
        assert (caught.value.status, caught.value.field) == (409, "generation")
    assert _progress(ledger)["done_records"] == 20

    assert rewind(ledger, 2, None, ticket=5)["records"] == 20


def test_only_the_leader_of_the_newest_term_rewinds_a_group() -> None:
    """A leader that was frozen has a term that is over."""
    ledger = opened("a", "b")
    lead = {"dataset": "train", "term": 0, "begins": True}
    assert join(ledger, "a", lead=lead)["term"] == 1
    done(ledger, "a", work(ledger, "a", want=1)["tasks"])
    command: Json = {"do": "rewind", "dataset": "train", "event": "term-1", "reason": "lost"}
    command |= {"version": 0, "position": None}
    assert join(ledger, "b", lead={**lead, "term": 1})["term"] == 2
    for name, term in (("a", 1), ("a", 2), ("b", 1)):
        with pytest.raises(RefusedError) as caught:
            ledger.execute(from_json({**command, **who(name), "term": term}))
        assert caught.value.field == "term"

    answer = ledger.execute(from_json({**command, **who("b"), "term": 2}))
    assert answer["records"] == 10
    with pytest.raises(RefusedError, match="either a term or a generation"):
        ledger.execute(from_json({**command, **who("b")}))


def test_evaluations_of_a_lost_model_are_done_again() -> None:
    """Another model will have the same version; those of earlier versions stay."""
    ledger = opened("a")
    described = shape(records=10, kind="evaluation", epochs=0)
    ledger.execute(Describe("evaluation", described))
    for version in (2, 4):
        ledger.execute(Evaluate(version, "evaluation"))
        (lease,) = work(ledger, "a", want=1, datasets=["evaluation"])["tasks"]
        done(ledger, "a", [lease], metrics={"loss": 1.0})
    ledger.execute(Rewind("a", "a-1", "train", "generation-0", "lost", 2, None, generation=1))
    ledger = _reopened(ledger)
    for version in (2, 4):
        ledger.execute(Evaluate(version, "evaluation"))

    pending = [e.model_version for e in ledger.datasets["evaluation"].evaluations if not e.complete]
    assert pending == [4]


DAMAGED: list[tuple[Json, str]] = [
    ({"shape": "other"}, "position.shape: it is of other data"),
    ({"opened": 2}, "position.open: train has 1 epochs"),
    ({"open": []}, ""),
    ({"open": [{"number": 1}]}, "position.open: train has 1 epochs"),
    ({"open": [{"cursor": 5}]}, "epoch 0 has more than 4 tasks"),
    ({"open": [{"todo": [[4, 0]]}]}, "epoch 0 has more than 4 tasks"),
    ({"open": [{"todo": [[0, 10]]}]}, "task 0 of epoch 0 has no records left"),
    ({"open": [{"todo": [[0, 0], [0, 1]]}]}, "epoch 0 names a task twice"),
    ({"open": [{"ahead": [2, 2]}]}, "epoch 0 names a task twice"),
]


@pytest.mark.parametrize(("damage", "text"), DAMAGED)
def test_a_damaged_position_is_refused_in_one_line_and_changes_nothing(
    damage: Json, text: str
) -> None:
    """A checkpoint is written by its tenant."""
    ledger = opened("a")
    done(ledger, "a", work(ledger, "a", want=1)["tasks"])
    position = position_of(ledger)
    epochs = [{**position["open"][0], **epoch} for epoch in damage.get("open", [])]
    damaged = {**position, **damage, **({"open": epochs} if "open" in damage else {})}
    before = ledger.dump()
    if not text:
        rewind(ledger, 1, damaged)
        assert ledger.complete
        return
    with pytest.raises(RefusedError) as caught:
        rewind(ledger, 1, damaged)

    assert caught.value.status == 422
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert ledger.dump() == before


@pytest.mark.parametrize(
    ("task", "remaining", "text"),
    [
        ("other/0/1", 0, "'other/0/1' is not a task of train"),
        ("train/0/4", 0, "'train/0/4' is not a task of train"),
        ("train/1/0", 0, "'train/1/0' is not a task of train"),
        ("train/0", 0, "'train/0' is not a task of train"),
        ("train/x/0", 0, "'train/x/0' is not a task of train"),
        (f"train/{'9' * 30}/0", 0, "is not a task of train"),
        ("train/0/1", 11, "'train/0/1' has fewer records than 11"),
    ],
)
def test_tasks_that_the_data_set_has_not_are_refused(task: str, remaining: int, text: str) -> None:
    """One line names the task."""
    with pytest.raises(RefusedError, match="remaining: ") as caught:
        rewind(opened("a"), 1, None, remaining={task: remaining})

    assert text in str(caught.value)


def test_a_job_that_is_over_is_not_rewound() -> None:
    """Its model may be exported already."""
    ledger = opened("a")
    done(ledger, "a", work(ledger, "a", want=4)["tasks"])
    with pytest.raises(RefusedError, match="the job is done"):
        rewind(ledger, 1, None)
    ledger = opened("a")
    with pytest.raises(RefusedError, match="of training does not exist"):
        ledger.execute(Rewind("a", "a-1", "none", "e", "r", 0, None, generation=1))


def test_a_position_can_be_ahead_of_a_ledger_that_was_lost() -> None:
    """A job whose master has lost all goes on behind its checkpoint."""
    before = opened("a", epochs=2)
    done(before, "a", work(before, "a", want=4)["tasks"])
    done(before, "a", work(before, "a", want=1)["tasks"])
    ledger = opened("a", epochs=2)

    assert rewind(ledger, 1, position_of(before))["records"] == 0
    assert _progress(ledger)["done_records"] == 50
    assert ledger.rollbacks.count == 0
    assert len(work(ledger, "a", want=9)["tasks"]) == 3


def test_a_model_brings_its_steps_and_those_in_other_data_stay() -> None:
    """One data set after the other: the first model is restored while the second is trained."""
    ledger = opened("a", epochs=2)
    ledger.execute(Describe("tuning", shape(30, task_records=10)))
    done(ledger, "a", work(ledger, "a", want=3)["tasks"], steps=2)
    position = position_of(ledger)
    done(ledger, "a", work(ledger, "a", want=1)["tasks"], steps=4)
    (other,) = work(ledger, "a", want=1, datasets=["tuning"])["tasks"]
    done(ledger, "a", [other], steps=3)
    assert (position["steps"], ledger.steps) == (6, 13)

    assert rewind(_reopened(ledger), 1, position)["steps"] == 4
    assert rewind(ledger, 1, {**position, "steps": 8})["steps"] == 2
    assert (ledger.steps, position_of(ledger)["steps"]) == (11, 8)
    lost = opened("a", epochs=2)
    assert (rewind(lost, 1, position)["steps"], lost.steps) == (0, 6)


def test_steps_of_an_earlier_version_are_those_of_the_only_data_set() -> None:
    """Its snapshots and positions have the sum of all."""
    ledger = opened("a", epochs=2)
    done(ledger, "a", work(ledger, "a", want=1)["tasks"], steps=2)
    position = position_of(ledger)
    done(ledger, "a", work(ledger, "a", want=1)["tasks"], steps=3)
    dumped = orjson.loads(orjson.dumps(ledger.dump()))
    del dumped["datasets"]["train"]["steps"]
    restored = Ledger("digits")
    restored.load(dumped)

    assert (rewind(restored, 1, position)["steps"], restored.steps) == (3, 2)


def test_a_position_names_the_settled_ones_of_some_tasks() -> None:
    """Done ones, and those of epochs that are complete."""
    ledger = opened("a", epochs=3)
    done(ledger, "a", work(ledger, "a", want=4)["tasks"])
    leases = work(ledger, "a", want=2)["tasks"]
    done(ledger, "a", leases[:1])
    tasks = ["train/0/3", "train/1/0", "train/1/1", "train/1/2", "train/2/0", "x"]

    assert rewinds.settled(ledger.datasets["train"], tasks) == tasks[:2]
