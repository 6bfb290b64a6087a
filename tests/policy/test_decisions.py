import re
from time import tzset

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy import decisions
from policy.decisions import Decision, Figure, fields, plain, sentence
from policy.explanations import CREATIONS, EXPLANATIONS, NODES, RELEASES, TARGETS
from policy.reasons import Reason
from tests.support.builders import shape
from tests.support.strategies import CALM

FIGURES: dict[str, Figure] = {
    name: shape(5, 8) if name in ("needs", "largest", "free", "promised") else 7
    for explanation in EXPLANATIONS.values()
    for text in explanation.sentences
    for name in fields(text)
}
"""A value for every figure of any sentence."""
SPOKEN = [reason for reason, text in EXPLANATIONS.items() if text.sentences]


def test_every_reason_is_explained() -> None:
    """Once, with its meaning; docs/reasons.md is written from this."""
    kinds = (TARGETS, RELEASES, CREATIONS, NODES)

    assert sorted(reason for kind in kinds for reason in kind) == sorted(Reason)
    assert all(text.meaning.strip() for text in EXPLANATIONS.values())


@pytest.mark.parametrize("reason", SPOKEN, ids=str)
def test_every_figure_of_a_sentence_is_explained(reason: Reason) -> None:
    """Readers of a record find each of its figures in the table."""
    spoken = {name for text in EXPLANATIONS[reason].sentences for name in fields(text)}

    assert spoken <= set(re.findall(r"`(\w+)`", EXPLANATIONS[reason].figures))


@pytest.mark.parametrize("reason", SPOKEN, ids=str)
def test_every_sentence_can_be_said(reason: Reason) -> None:
    """No sentence is hidden by one before it that wants fewer figures, and none has a gap."""
    field_sets = [fields(text) for text in EXPLANATIONS[reason].sentences]
    sentences = [sentence(reason, {name: FIGURES[name] for name in names}) for names in field_sets]

    assert len(set(sentences)) == len(sentences)
    assert all(sentences)
    assert "{" not in "".join(sentences)


def test_a_code_without_a_sentence_says_all_by_itself() -> None:
    """So does one whose figures are not at hand."""
    assert sentence(Reason.NODE_UNKNOWN, {"nodes": 3}) == ""
    assert sentence(Reason.AT_MAX, {}) == ""


@pytest.mark.parametrize(
    ("trainers", "counted"), [(0, "0 trainers"), (1, "1 trainer"), (2, "2 trainers")]
)
def test_a_counted_noun_agrees_with_its_number(trainers: int, counted: str) -> None:
    """Only one is singular."""
    text = sentence(Reason.AT_MAX, {"max": trainers})

    assert text == f"the job has its maximum of {counted}"


def test_amounts_are_written_as_kubernetes_writes_them() -> None:
    """In the sentence and in JSON; the slot that every pod takes is nobody's concern."""
    decision = Decision("job ml/net", Reason.WAITING_FOR_ROOM, {"missing": 2, "needs": shape(5, 8)})

    assert decision.text == "no capacity for 2 guaranteed trainers (5 cpu, 8Gi memory each)"
    assert decision.to_json() == {
        "about": "job ml/net",
        "code": "WaitingForRoom",
        "text": decision.text,
        "figures": {"missing": 2, "needs": {"cpu": "5", "memory": "8Gi", "pods": "1"}},
        "at": 0.0,
    }


def test_times_are_in_utc_wherever_the_process_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded up, so that the time has come when it is shown."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        tzset()
        shown = decisions.time(0.5)
    tzset()

    assert shown == "1970-01-01T00:00:01Z"


@CALM
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_shares_are_shown_to_four_digits(share: float) -> None:
    """In JSON as in sentences nobody reads more."""
    assert plain(share) == round(share, 4)
    assert plain(0.123_46) == 0.1235
    to: dict[str, Figure] = {
        "to": "ml/a",
        "to_trainers": 1,
        "of": "ml/b",
        "of_trainers": 3,
        "of_share": 0.5,
    }

    assert f"(share {share:.4g})" in sentence(Reason.FAIR_SHARE, {**to, "to_share": share})
