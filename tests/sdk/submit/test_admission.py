"""`edl submit` and EDL's admission check a Job in two distributions, and reach the same verdict."""

import contextlib
import io
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from edl import __main__
from hypothesis import given, settings
from hypothesis import strategies as st

from policy import names
from policy.admission import job_settings, job_spec, mutation
from policy.admission.views import JobView
from policy.errors import JobError
from tests.support.builders import job_view

MODEL = "def model(): ...\ndef loss(outputs, labels): ...\ndef optimizer(parameters): ...\n"
LEAST = ("--async", "--name=digits", "--image=digits:1", "--data=/data", "--min=2", "--max=900")
ANNOTATIONS = {
    names.ANNOTATION_MIN: "2",
    names.ANNOTATION_MAX: "900",
    names.ANNOTATION_MASTER: "true",
    names.ANNOTATION_SERVERS: "2",
}
"""What `LEAST` becomes."""
FLAGS = {
    "--min": names.ANNOTATION_MIN,
    "--max": names.ANNOTATION_MAX,
    "--queue": names.ANNOTATION_QUEUE,
    "--weight": names.ANNOTATION_WEIGHT,
    "--servers": names.ANNOTATION_SERVERS,
    "--server-cpu": names.ANNOTATION_SERVER_CPU,
    "--server-memory": names.ANNOTATION_SERVER_MEMORY,
    "--server-claim": names.ANNOTATION_CLAIM,
}
LABEL = 63
SUBDOMAIN = 253


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's file."""
    path = tmp_path_factory.mktemp("submit") / "digits.py"
    path.write_text(MODEL)
    return path


def _submitted(model: Path, *flags: str) -> Mapping[str, str] | None:
    """The annotations of the Job that is printed; None where the flags are refused."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        try:
            code = __main__.main(["submit", str(model), *LEAST, *flags])
        except SystemExit as ended:
            code = int(ended.code or 0)
    if code:
        return None
    _, job = json.loads(output.getvalue())["items"]
    annotations: dict[str, str] = job["metadata"]["annotations"]
    mutation.check_job(JobView.parse(job))
    job_spec.check_names(annotations)
    return annotations


def _is_admitted(annotations: Mapping[str, str]) -> bool:
    try:
        mutation.check_job(job_view(annotations, {}))
    except JobError:
        return False
    return True


def _have_one_verdict(model: Path, flag: str, text: str) -> bool:
    submitted = _submitted(model, f"{flag}={text}")
    return (submitted is not None) == _is_admitted({**ANNOTATIONS, FLAGS[flag]: text})


EDGES = [
    *(("--min", text) for text in ("0", "1", "2", "900", "901", "", "two", "-1", "1.0", "1e2")),
    *(("--max", str(job_settings.MAX_TRAINERS + over)) for over in (0, 1)),
    *(("--max", text) for text in ("1", "2", " 007 ", "+7", "1_0", "\u0661", "9" * 9)),
    *(("--weight", str(job_settings.MAX_WEIGHT + over)) for over in (0, 1)),
    *(("--weight", text) for text in ("0", "1", "")),
    *(("--servers", str(job_settings.MAX_SERVERS + over)) for over in (0, 1)),
    *(("--servers", text) for text in ("0", "1", "")),
    *(("--queue", "q" * length) for length in (1, LABEL, LABEL + 1)),
    *(("--queue", text) for text in (" ", "a/b", "\u00e9" * LABEL)),
    *(("--server-claim", "c" * length) for length in (0, 1, LABEL + 1, SUBDOMAIN, SUBDOMAIN + 1)),
    *(("--server-claim", text) for text in ("a.b", "a..b", "a.-b", "a-.b", ".a", "a.", "-", "A")),
    *(("--server-claim", text) for text in ("a\n", "a b", "a_b", "\u00e9", "0.0")),
    *(("--server-cpu", text) for text in ("", "0", "0m", "1m", "0.001", "2", "500m", "2.5", "x")),
    *(("--server-cpu", text) for text in ("-1", "2 ", "1,5", "\u0662")),
    *(
        ("--server-memory", text)
        for text in ("", "0", "512", "512m", "64Mi", "1Gb", "1 Gi", "-1Gi")
    ),
    *(("--server-memory", text) for text in ("131071Ki", "131072Ki", "127Mi", "128Mi", "0.125Gi")),
    *(
        ("--server-memory", text)
        for text in ("134217727", "134217727.5", "134217728", "135M", "1T")
    ),
]


@pytest.mark.parametrize(
    ("flag", "text"), EDGES, ids=[f"{flag[2:]}={text!r:.16}-{len(text)}" for flag, text in EDGES]
)
def test_both_give_one_verdict_at_the_edges(model: Path, flag: str, text: str) -> None:
    """Of each limit and each pattern."""
    assert _have_one_verdict(model, flag, text)


_NUMBERS = st.one_of(
    st.integers(-2, 2 * job_settings.MAX_TRAINERS).map(str),
    st.integers(0, 100).map(str),
    st.text("0123456789 +-._e\u0661", max_size=8),
)
_NAMES = st.text("ab9.-_A ", max_size=12)
_TEXTS = {
    "--min": _NUMBERS,
    "--max": _NUMBERS,
    "--weight": _NUMBERS,
    "--servers": _NUMBERS,
    "--queue": st.text(st.characters(codec="utf-8"), min_size=1, max_size=70),
    "--server-claim": _NAMES,
    # the API server takes more notations ("9."), and finer fractions of a CPU than it keeps
    "--server-cpu": st.one_of(
        st.integers(0, 10_000).map("{}m".format),
        st.decimals(0, 999, places=3).map(str),
        st.text("ab9-_A ", max_size=12),
    ),
    "--server-memory": st.builds(
        "{}{}".format,
        st.decimals(0, 10**6, places=3),
        st.sampled_from(["", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "mi", "B"]),
    ),
}


@settings(deadline=None, max_examples=2 * settings().max_examples)  # cores are shared
@given(data=st.data())
def test_both_give_one_verdict_for_any_text(model: Path, data: st.DataObject) -> None:
    """And what is submitted is admitted."""
    flag = data.draw(st.sampled_from(list(_TEXTS)))

    assert _have_one_verdict(model, flag, data.draw(_TEXTS[flag]))


@settings(deadline=None)
@given(texts=st.fixed_dictionaries({}, optional=_TEXTS))
def test_what_is_submitted_is_admitted(model: Path, texts: dict[str, str]) -> None:
    """Whatever flags are given together."""
    annotations = _submitted(model, *(f"{flag}={text}" for flag, text in texts.items()))

    assert annotations is None or {FLAGS[flag] for flag in texts} <= annotations.keys()
